//! Handles of a program under construction and of a workload, which can run.

use std::ffi::CString;
use std::ptr;

use muse_core::Result;
use muse_core::quant::tile::TileFormat;
use muse_tt_sys::ffi::{
    MTT_BF16, MTT_BFP4, MTT_BFP8, MTT_COMPUTE, MTT_DRAM, MTT_F32, MTT_READER, MTT_WRITER,
    mtt_cores, mtt_define, mtt_format, mtt_kernel, mtt_processor, mtt_program, mtt_workload,
};

use crate::cores::Core;
use crate::device::{Device, DeviceLock};
use crate::error::check;
use crate::plan::{Accessor, CircularBuffer, Kernel, Processor};

const SETTING_ARGUMENTS: &str = "setting the arguments of a kernel";

/// A program under construction.
pub(super) struct Program {
    device: Device,
    raw: *mut mtt_program,
}

impl Program {
    pub(super) fn new(device: &Device) -> Result<Self> {
        let new = device.api().program_new.expect("a vtable has all functions");
        let mut raw = ptr::null_mut();
        let _lock = device.lock();
        // SAFETY: `raw` has space for one handle.
        check(device.api(), unsafe { new(&mut raw) }, "creating a program")?;
        Ok(Self { device: device.clone(), raw })
    }

    pub(super) fn circular_buffer(
        &self,
        cores: &[mtt_cores],
        buffer: &CircularBuffer,
    ) -> Result<()> {
        let add = self.device.api().circular_buffer.expect("a vtable has all functions");
        let (at, count) = (cores.as_ptr(), cores.len());
        let (format, bytes) = (format_code(buffer.format), buffer.format.bytes() as u32);
        let _lock = self.device.lock();
        // SAFETY: the program is alive, and there are `count` ranges.
        let status = unsafe { add(self.raw, at, count, buffer.index, format, bytes, buffer.pages) };
        check(self.device.api(), status, "creating a circular buffer")
    }

    pub(super) fn semaphore(&self, cores: &[mtt_cores]) -> Result<u32> {
        let add = self.device.api().semaphore.expect("a vtable has all functions");
        let (at, count, mut id) = (cores.as_ptr(), cores.len(), 0);
        let _lock = self.device.lock();
        // SAFETY: the program is alive, there are `count` ranges, and `id` has space for a number.
        let status = unsafe { add(self.raw, at, count, 0, &mut id) };
        check(self.device.api(), status, "creating a semaphore")?;
        Ok(id)
    }

    pub(super) fn kernel(
        &self,
        cores: &[mtt_cores],
        kernel: &Kernel,
        source: &str,
        unpack_to_f32: u32,
    ) -> Result<u32> {
        let mut args = kernel.constants.clone();
        for accessor in &kernel.accessors {
            args.extend(self.accessor(*accessor)?);
        }
        let source = CString::new(source).expect("sources contain no zero byte");
        let names: Vec<CString> = kernel
            .defines
            .iter()
            .map(|name| CString::new(*name).expect("macro names contain no zero byte"))
            .collect();
        let defines: Vec<mtt_define> =
            names.iter().map(|n| mtt_define { name: n.as_ptr(), value: c"1".as_ptr() }).collect();
        let raw = mtt_kernel {
            source: source.as_ptr(),
            processor: processor_code(kernel.processor),
            fidelity: 3,
            f32_accumulate: 1,
            unpack_to_f32,
            arg_count: args.len() as u32,
            args: args.as_ptr(),
            define_count: defines.len(),
            defines: defines.as_ptr(),
        };
        let add = self.device.api().kernel.expect("a vtable has all functions");
        let (at, count, mut id) = (cores.as_ptr(), cores.len(), 0);
        let _lock = self.device.lock();
        // SAFETY: the program is alive; everything that the kernel points to lives until the call
        // has returned, and its counts, as that of the ranges, are right.
        let status = unsafe { add(self.raw, at, count, &raw, &mut id) };
        check(self.device.api(), status, "creating a kernel")?;
        Ok(id)
    }

    fn accessor(&self, accessor: Accessor) -> Result<Vec<u32>> {
        let Accessor::Dram = accessor;
        let of = self.device.api().accessor.expect("a vtable has all functions");
        let (mut words, mut count) = (vec![0; 16], 16);
        let _lock = self.device.lock();
        // SAFETY: there is space for `count` words.
        let status = unsafe { of(MTT_DRAM, words.as_mut_ptr(), &mut count) };
        check(self.device.api(), status, "describing a buffer")?;
        words.truncate(count);
        Ok(words)
    }

    pub(super) fn runtime_args(&self, kernel: u32, core: Core, words: &[u32]) -> Result<()> {
        let set = self.device.api().runtime_args.expect("a vtable has all functions");
        let (column, row) = (core.column, core.row);
        let _lock = self.device.lock();
        // SAFETY: the program is alive, and `words` has as many words as are passed.
        let status = unsafe { set(self.raw, kernel, column, row, words.as_ptr(), words.len()) };
        check(self.device.api(), status, SETTING_ARGUMENTS)
    }

    pub(super) fn common_args(&self, kernel: u32, words: &[u32]) -> Result<()> {
        let set = self.device.api().common_args.expect("a vtable has all functions");
        let _lock = self.device.lock();
        // SAFETY: the program is alive, and `words` has as many words as are passed.
        let status = unsafe { set(self.raw, kernel, words.as_ptr(), words.len()) };
        check(self.device.api(), status, SETTING_ARGUMENTS)
    }

    pub(super) fn finish(mut self) -> Result<Workload> {
        let new = self.device.api().workload_new.expect("a vtable has all functions");
        let (program, mut raw) =
            (std::mem::replace(&mut self.raw, ptr::null_mut()), ptr::null_mut());
        let _lock = self.device.lock();
        // SAFETY: the program is alive and its ownership passes to the call; `raw` has space for
        // one handle.
        let status = unsafe { new(program, &mut raw) };
        check(self.device.api(), status, "finishing a program")?;
        Ok(Workload { device: self.device.clone(), raw })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        let free = self.device.api().program_free.expect("a vtable has all functions");
        let _lock = self.device.lock();
        // SAFETY: this is the only handle of the program, and `finish` did not pass it on.
        unsafe { free(self.raw) };
    }
}

/// A program that can run.
pub(super) struct Workload {
    device: Device,
    raw: *mut mtt_workload,
}

// SAFETY: as for the device; a workload is used only under the lock of its device.
unsafe impl Send for Workload {}
// SAFETY: as above.
unsafe impl Sync for Workload {}

impl Workload {
    /// Replaces the runtime arguments of a kernel on one core.
    pub(super) fn runtime_args(
        &self,
        lock: &DeviceLock<'_>,
        kernel: u32,
        core: Core,
        words: &[u32],
    ) -> Result<()> {
        let api = lock.device().api();
        let set = api.workload_runtime_args.expect("a vtable has all functions");
        let (column, row) = (core.column, core.row);
        // SAFETY: the workload is alive, and `words` has as many words as are passed.
        let status = unsafe { set(self.raw, kernel, column, row, words.as_ptr(), words.len()) };
        check(api, status, SETTING_ARGUMENTS)
    }

    /// Replaces the common runtime arguments of a kernel.
    pub(super) fn common_args(
        &self,
        lock: &DeviceLock<'_>,
        kernel: u32,
        words: &[u32],
    ) -> Result<()> {
        let api = lock.device().api();
        let set = api.workload_common_args.expect("a vtable has all functions");
        // SAFETY: the workload is alive, and `words` has as many words as are passed.
        let status = unsafe { set(self.raw, kernel, words.as_ptr(), words.len()) };
        check(api, status, SETTING_ARGUMENTS)
    }

    /// Enqueues it, and waits for its end if `wait` is set.
    pub(super) fn run(&self, lock: &DeviceLock<'_>, wait: bool) -> Result<()> {
        let api = lock.device().api();
        let run = api.workload_run.expect("a vtable has all functions");
        // SAFETY: the device is open and the workload is alive.
        let status = unsafe { run(lock.raw(), self.raw, u32::from(wait)) };
        check(api, status, "running a program")
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let free = self.device.api().workload_free.expect("a vtable has all functions");
        let _lock = self.device.lock();
        // SAFETY: this is the only handle of the workload, and the device is open.
        unsafe { free(self.raw) };
    }
}

fn format_code(format: TileFormat) -> mtt_format {
    match format {
        TileFormat::F32 => MTT_F32,
        TileFormat::Bf16 => MTT_BF16,
        TileFormat::Bfp8 => MTT_BFP8,
        TileFormat::Bfp4 => MTT_BFP4,
    }
}

fn processor_code(processor: Processor) -> mtt_processor {
    match processor {
        Processor::Reader => MTT_READER,
        Processor::Writer => MTT_WRITER,
        Processor::Compute => MTT_COMPUTE,
    }
}
