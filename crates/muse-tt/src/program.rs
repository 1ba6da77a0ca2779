//! Programs as plain data, and those that are compiled already.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::CString;
use std::ptr;

use muse_core::Result;
use muse_core::quant::tile::TileFormat;
use muse_tt_sys::ffi::{
    MTT_BF16, MTT_BFP4, MTT_BFP8, MTT_COMPUTE, MTT_DRAM, MTT_F32, MTT_READER, MTT_WRITER,
    mtt_cores, mtt_define, mtt_format, mtt_kernel, mtt_processor, mtt_program, mtt_workload,
};

use crate::cores::{Core, Cores};
use crate::cost::{Cost, Counter};
use crate::device::{Buffer, Device};
use crate::error::check;

/// A queue of pages between the kernels of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CircularBuffer {
    /// What kernels call it by.
    pub index: u32,
    /// How the values of a page are stored; a page is a tile.
    pub format: TileFormat,
    /// Room in pages.
    pub pages: u32,
    /// Whether its F32 values are only copied to the registers, and with all of their bits: what
    /// is multiplied or reduced from a buffer has 19.
    pub whole: bool,
}

/// What a kernel runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Processor {
    /// Moves data in, by custom.
    Reader,
    /// Moves data out, by custom.
    Writer,
    /// Computes, with sums in f32 and the most exact products.
    Compute,
}

/// How a kernel finds the pages of a buffer, as arguments at compile time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accessor {
    /// Pages dealt out to all banks of DRAM.
    Dram,
}

/// A kernel and what it is compiled with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The C++ of it.
    pub source: &'static str,
    /// What it runs on.
    pub processor: Processor,
    /// Numbers known when it is compiled.
    pub constants: Vec<u32>,
    /// Behind them, one a buffer that it reads or writes.
    pub accessors: Vec<Accessor>,
    /// Names that the preprocessor knows, with the value 1.
    pub defines: Vec<&'static str>,
}

/// All of a program that is known when it is compiled. Equal shapes are compiled once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Where it runs.
    pub cores: Cores,
    /// On each core.
    pub buffers: Vec<CircularBuffer>,
    /// On each core.
    pub kernels: Vec<Kernel>,
    /// How many each core has; kernels call them by their numbers, and each begins at 0.
    pub semaphores: u32,
}

/// An argument of a kernel at run time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// Where a buffer is.
    Address(u64),
    /// A number.
    Number(u32),
    /// A real number, which the kernel takes as its bits.
    Real(f32),
}

impl Arg {
    /// Where `buffer` is.
    pub fn address(buffer: &Buffer) -> Self {
        Self::Address(buffer.address())
    }

    fn word(self) -> u32 {
        match self {
            Self::Address(at) => u32::try_from(at).expect("banks have 32 bits of addresses"),
            Self::Number(number) => number,
            Self::Real(real) => real.to_bits(),
        }
    }
}

/// A program with its arguments.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is compiled.
    pub shape: Shape,
    /// For each kernel of the shape: every core's arguments.
    pub args: Vec<Vec<(Core, Vec<Arg>)>>,
}

impl Plan {
    /// How many cores it runs on.
    pub fn cores(&self) -> u64 {
        u64::from(self.shape.cores.count())
    }
}

/// Programs of one device that are compiled.
pub struct Programs {
    device: Device,
    compiled: HashMap<Shape, Compiled>,
    counter: Option<Counter>,
}

/// A workload and the numbers of its kernels.
struct Compiled {
    workload: Workload,
    kernels: Vec<u32>,
}

impl Programs {
    /// None yet.
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), compiled: HashMap::new(), counter: None }
    }

    /// None yet, and those to come count what they cost.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when cores have no room for counts.
    pub fn counting(device: &Device) -> Result<Self> {
        let counter = Some(Counter::new(device)?);
        Ok(Self { counter, ..Self::new(device) })
    }

    /// What all runs cost; nothing when they do not count.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn cost(&self) -> Result<Option<Cost>> {
        self.counter.as_ref().map(Counter::cost).transpose()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.compiled.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.compiled.is_empty()
    }

    /// The device they are for.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Starts a plan, compiling it when its shape is new; returns when it has ended if `wait` is
    /// set.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when it does not compile or the device fails.
    pub fn run(&mut self, plan: &Plan, wait: bool) -> Result<()> {
        assert_eq!(plan.args.len(), plan.shape.kernels.len(), "arguments of every kernel");
        if let Some(compiled) = self.compiled.get(&plan.shape) {
            compiled.set_args(&self.device, plan)?;
            return compiled.workload.run(&self.device, wait);
        }
        let compiled = Compiled::new(&self.device, plan, self.counter.as_ref())?;
        compiled.workload.run(&self.device, wait)?;
        self.compiled.insert(plan.shape.clone(), compiled);
        Ok(())
    }
}

impl Compiled {
    fn new(device: &Device, plan: &Plan, counter: Option<&Counter>) -> Result<Self> {
        let program = Program::new(device)?;
        let ranges = plan.shape.cores.ranges();
        let whole = plan.shape.buffers.iter().filter(|buffer| buffer.whole);
        let whole = whole.fold(0, |bits, buffer| bits | 1 << buffer.index);
        for buffer in &plan.shape.buffers {
            program.circular_buffer(&ranges, buffer)?;
        }
        for number in 0..plan.shape.semaphores {
            assert_eq!(program.semaphore(&ranges)?, number, "semaphores are numbered in order");
        }
        let mut kernels = Vec::with_capacity(plan.shape.kernels.len());
        for (kernel, args) in plan.shape.kernels.iter().zip(&plan.args) {
            let source = counter.map(|counter| counter.source(kernel));
            let source = source.unwrap_or(Cow::Borrowed(kernel.source));
            let id = program.kernel(&ranges, kernel, &source, whole)?;
            for (core, args) in args {
                program.runtime_args(id, *core, &words(args))?;
            }
            kernels.push(id);
        }
        Ok(Self { workload: program.finish()?, kernels })
    }

    fn set_args(&self, device: &Device, plan: &Plan) -> Result<()> {
        let set = device.api().workload_runtime_args.expect("a table has all functions");
        let _turn = device.turn();
        for (id, args) in self.kernels.iter().zip(&plan.args) {
            for (core, args) in args {
                let (to, words) = (self.workload.raw, words(args));
                // SAFETY: the workload is alive, and the words are as many as are said.
                let status =
                    unsafe { set(to, *id, core.column, core.row, words.as_ptr(), words.len()) };
                check(device.api(), status, "setting the arguments of a kernel")?;
            }
        }
        Ok(())
    }
}

fn words(args: &[Arg]) -> Vec<u32> {
    args.iter().map(|arg| arg.word()).collect()
}

/// A program while it is put together.
struct Program {
    device: Device,
    raw: *mut mtt_program,
}

impl Program {
    fn new(device: &Device) -> Result<Self> {
        let new = device.api().program_new.expect("a table has all functions");
        let mut raw = ptr::null_mut();
        let _turn = device.turn();
        // SAFETY: `raw` is a place for one handle.
        check(device.api(), unsafe { new(&mut raw) }, "making a program")?;
        Ok(Self { device: device.clone(), raw })
    }

    fn circular_buffer(&self, cores: &[mtt_cores], buffer: &CircularBuffer) -> Result<()> {
        let add = self.device.api().circular_buffer.expect("a table has all functions");
        let (at, count) = (cores.as_ptr(), cores.len());
        let (format, bytes) = (format_code(buffer.format), buffer.format.bytes() as u32);
        let _turn = self.device.turn();
        // SAFETY: the program is alive, and the ranges are as many as are said.
        let status = unsafe { add(self.raw, at, count, buffer.index, format, bytes, buffer.pages) };
        check(self.device.api(), status, "making a circular buffer")
    }

    fn semaphore(&self, cores: &[mtt_cores]) -> Result<u32> {
        let add = self.device.api().semaphore.expect("a table has all functions");
        let (at, count, mut id) = (cores.as_ptr(), cores.len(), 0);
        let _turn = self.device.turn();
        // SAFETY: the program is alive, the ranges are as many as are said, and `id` is a place for
        // a number.
        let status = unsafe { add(self.raw, at, count, 0, &mut id) };
        check(self.device.api(), status, "making a semaphore")?;
        Ok(id)
    }

    fn kernel(
        &self,
        cores: &[mtt_cores],
        kernel: &Kernel,
        source: &str,
        whole: u32,
    ) -> Result<u32> {
        let mut args = kernel.constants.clone();
        for accessor in &kernel.accessors {
            args.extend(self.accessor(*accessor)?);
        }
        let source = CString::new(source).expect("kernels hold no zero");
        let names: Vec<CString> =
            kernel.defines.iter().map(|name| CString::new(*name).expect("a name")).collect();
        let defines: Vec<mtt_define> =
            names.iter().map(|n| mtt_define { name: n.as_ptr(), value: c"1".as_ptr() }).collect();
        let raw = mtt_kernel {
            source: source.as_ptr(),
            processor: processor_code(kernel.processor),
            fidelity: 3,
            wide_sums: 1,
            whole_values: whole,
            arg_count: args.len() as u32,
            args: args.as_ptr(),
            define_count: defines.len(),
            defines: defines.as_ptr(),
        };
        let add = self.device.api().kernel.expect("a table has all functions");
        let (at, count, mut id) = (cores.as_ptr(), cores.len(), 0);
        let _turn = self.device.turn();
        // SAFETY: the program is alive; the kernel and the ranges point to what lives until the
        // call has returned, and are as many as are said.
        let status = unsafe { add(self.raw, at, count, &raw, &mut id) };
        check(self.device.api(), status, "making a kernel")?;
        Ok(id)
    }

    fn accessor(&self, accessor: Accessor) -> Result<Vec<u32>> {
        let Accessor::Dram = accessor;
        let of = self.device.api().accessor.expect("a table has all functions");
        let (mut words, mut count) = (vec![0; 16], 16);
        let _turn = self.device.turn();
        // SAFETY: there is room for as many words as `count` says.
        let status = unsafe { of(MTT_DRAM, words.as_mut_ptr(), &mut count) };
        check(self.device.api(), status, "describing a buffer")?;
        words.truncate(count);
        Ok(words)
    }

    fn runtime_args(&self, kernel: u32, core: Core, words: &[u32]) -> Result<()> {
        let set = self.device.api().runtime_args.expect("a table has all functions");
        let (column, row) = (core.column, core.row);
        let _turn = self.device.turn();
        // SAFETY: the program is alive, and the words are as many as are said.
        let status = unsafe { set(self.raw, kernel, column, row, words.as_ptr(), words.len()) };
        check(self.device.api(), status, "setting the arguments of a kernel")
    }

    fn finish(mut self) -> Result<Workload> {
        let new = self.device.api().workload_new.expect("a table has all functions");
        let (program, mut raw) =
            (std::mem::replace(&mut self.raw, ptr::null_mut()), ptr::null_mut());
        let _turn = self.device.turn();
        // SAFETY: the program is alive and given away here; `raw` is a place for one handle.
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
        let free = self.device.api().program_free.expect("a table has all functions");
        let _turn = self.device.turn();
        // SAFETY: it was not given away, and nobody else holds it.
        unsafe { free(self.raw) };
    }
}

/// A program that can run.
struct Workload {
    device: Device,
    raw: *mut mtt_workload,
}

// SAFETY: as of the device; a workload is reached through its device's turn.
unsafe impl Send for Workload {}

impl Workload {
    fn run(&self, device: &Device, wait: bool) -> Result<()> {
        let run = device.api().workload_run.expect("a table has all functions");
        let _turn = device.turn();
        // SAFETY: the device is open and the workload alive.
        let status = unsafe { run(device.raw(), self.raw, u32::from(wait)) };
        check(device.api(), status, "running a program")
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let free = self.device.api().workload_free.expect("a table has all functions");
        let _turn = self.device.turn();
        // SAFETY: nobody else holds it, and the device is open.
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
