//! A table of functions without a device: buffers are memory, kernels are only counted, and a call
//! can be told to fail. It lives in a thread, as each test does.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};

use muse_tt_sys::Library;
use muse_tt_sys::ffi::{
    MTT_ABI, MTT_EXHAUSTED, MTT_FAILED, MTT_OK, mtt_api, mtt_buffer, mtt_cores, mtt_device,
    mtt_format, mtt_kernel, mtt_memory, mtt_program, mtt_status, mtt_workload,
};

/// What happened so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    /// Handles that are alive, of all kinds.
    pub(crate) alive: i64,
    /// Sources of kernels that were compiled.
    pub(crate) kernels: Vec<String>,
    /// Semaphores of the program that is put together.
    pub(crate) semaphores: u32,
    /// Arguments, in the order they were set: kernel, column, row, words.
    pub(crate) args: Vec<(u32, u32, u32, Vec<u32>)>,
    /// Workloads that ran.
    pub(crate) runs: usize,
    /// Traces that were replayed.
    pub(crate) replays: usize,
}

thread_local! {
    static LOG: RefCell<Log> = RefCell::default();
    static FAULT: RefCell<Option<(&'static str, mtt_status)>> = const { RefCell::new(None) };
}

/// What happened so far on this thread.
pub(crate) fn log() -> Log {
    LOG.with_borrow(Clone::clone)
}

/// The next call of the function named fails: for want of memory, or otherwise.
pub(crate) fn fail_next(function: &'static str, exhausted: bool) {
    let status = if exhausted { MTT_EXHAUSTED } else { MTT_FAILED };
    FAULT.set(Some((function, status)));
}

fn enter(function: &str, act: impl FnOnce(&mut Log)) -> mtt_status {
    match FAULT.take() {
        Some((failing, status)) if failing == function => return status,
        later => FAULT.set(later),
    }
    LOG.with_borrow_mut(act);
    MTT_OK
}

/// Makes a handle that holds `value`.
fn hand_out<T, H>(out: *mut *mut H, value: T) {
    // SAFETY: every function of the table is called with a place for one handle.
    unsafe { *out = Box::into_raw(Box::new(value)).cast() };
}

fn take_back<T, H>(handle: *mut H) {
    LOG.with_borrow_mut(|log| log.alive -= 1);
    // SAFETY: the handle was handed out as a box of this type and comes back once.
    drop(unsafe { Box::from_raw(handle.cast::<T>()) });
}

fn copied(words: *const u32, count: usize) -> Vec<u32> {
    // SAFETY: every function of the table is called with as many words as it says.
    unsafe { std::slice::from_raw_parts(words, count) }.to_vec()
}

extern "C" fn message() -> *const c_char {
    c"the fake was told to fail\nbacktrace:\n --- nowhere".as_ptr()
}
extern "C" fn device_open(_: u32, _: u64, out: *mut *mut mtt_device) -> mtt_status {
    enter("device_open", |log| {
        log.alive += 1;
        hand_out(out, 0_u8);
    })
}
extern "C" fn device_close(device: *mut mtt_device) -> mtt_status {
    take_back::<u8, _>(device);
    MTT_OK
}
extern "C" fn device_grid(_: *mut mtt_device, x: *mut u32, y: *mut u32) -> mtt_status {
    // SAFETY: both are places for a number.
    unsafe { *x = 13 };
    // SAFETY: as above.
    unsafe { *y = 10 };
    MTT_OK
}
extern "C" fn device_network(
    _: *mut mtt_device,
    column: u32,
    row: u32,
    x: *mut u32,
    y: *mut u32,
) -> mtt_status {
    // SAFETY: both are places for a number.
    unsafe { *x = column + 1 };
    // SAFETY: as above.
    unsafe { *y = row + 2 };
    MTT_OK
}
extern "C" fn device_finish(_: *mut mtt_device) -> mtt_status {
    enter("device_finish", |_| ())
}
extern "C" fn buffer_new(
    _: *mut mtt_device,
    _: mtt_memory,
    bytes: u64,
    _: u32,
    out: *mut *mut mtt_buffer,
) -> mtt_status {
    enter("buffer_new", |log| {
        log.alive += 1;
        hand_out(out, vec![0_u8; bytes as usize]);
    })
}
extern "C" fn buffer_free(buffer: *mut mtt_buffer) {
    take_back::<Vec<u8>, _>(buffer);
}
extern "C" fn buffer_address(_: *const mtt_buffer) -> u64 {
    4096
}
extern "C" fn buffer_write(to: *mut mtt_buffer, from: *const c_void, bytes: u64) -> mtt_status {
    enter("buffer_write", |_| {
        // SAFETY: the handle was handed out as a vector of as many bytes.
        let to = unsafe { &mut *to.cast::<Vec<u8>>() };
        // SAFETY: the caller says how many bytes it has.
        to.copy_from_slice(unsafe { std::slice::from_raw_parts(from.cast(), bytes as usize) });
    })
}
extern "C" fn buffer_read(from: *mut mtt_buffer, to: *mut c_void, bytes: u64) -> mtt_status {
    enter("buffer_read", |_| {
        // SAFETY: the handle was handed out as a vector.
        let from = unsafe { &*from.cast::<Vec<u8>>() };
        // SAFETY: the caller says how many bytes it has room for.
        unsafe { std::slice::from_raw_parts_mut(to.cast(), bytes as usize) }.copy_from_slice(from);
    })
}
extern "C" fn accessor(_: mtt_memory, args: *mut u32, count: *mut usize) -> mtt_status {
    // SAFETY: there is room for more than one word.
    unsafe { *args = 2 };
    // SAFETY: it is a place for a number.
    unsafe { *count = 1 };
    MTT_OK
}
extern "C" fn program_new(out: *mut *mut mtt_program) -> mtt_status {
    enter("program_new", |log| {
        log.alive += 1;
        log.semaphores = 0;
        hand_out(out, 0_u16);
    })
}
extern "C" fn program_free(program: *mut mtt_program) {
    take_back::<u16, _>(program);
}
extern "C" fn circular_buffer(
    _: *mut mtt_program,
    _: *const mtt_cores,
    _: usize,
    _: u32,
    _: mtt_format,
    _: u32,
    _: u32,
) -> mtt_status {
    enter("circular_buffer", |_| ())
}
extern "C" fn semaphore(
    _: *mut mtt_program,
    _: *const mtt_cores,
    _: usize,
    _: u32,
    id: *mut u32,
) -> mtt_status {
    enter("semaphore", |log| {
        // SAFETY: it is a place for a number.
        unsafe { *id = log.semaphores };
        log.semaphores += 1;
    })
}
extern "C" fn kernel(
    _: *mut mtt_program,
    _: *const mtt_cores,
    _: usize,
    kernel: *const mtt_kernel,
    id: *mut u32,
) -> mtt_status {
    enter("kernel", |log| {
        // SAFETY: the caller's kernel lives during the call.
        let source = unsafe { (*kernel).source };
        // SAFETY: its source ends in a zero.
        let source = unsafe { CStr::from_ptr(source) };
        // SAFETY: it is a place for a number.
        unsafe { *id = log.kernels.len() as u32 };
        log.kernels.push(source.to_string_lossy().into_owned());
    })
}
extern "C" fn runtime_args(
    _: *mut mtt_program,
    kernel: u32,
    column: u32,
    row: u32,
    words: *const u32,
    count: usize,
) -> mtt_status {
    enter("runtime_args", |log| log.args.push((kernel, column, row, copied(words, count))))
}
extern "C" fn common_args(_: *mut mtt_program, _: u32, _: *const u32, _: usize) -> mtt_status {
    MTT_FAILED
}
extern "C" fn workload_new(program: *mut mtt_program, out: *mut *mut mtt_workload) -> mtt_status {
    take_back::<u16, _>(program);
    enter("workload_new", |log| {
        log.alive += 1;
        hand_out(out, 0_u32);
    })
}
extern "C" fn workload_free(workload: *mut mtt_workload) {
    take_back::<u32, _>(workload);
}
extern "C" fn workload_runtime_args(
    _: *mut mtt_workload,
    kernel: u32,
    column: u32,
    row: u32,
    words: *const u32,
    count: usize,
) -> mtt_status {
    enter("workload_runtime_args", |log| log.args.push((kernel, column, row, copied(words, count))))
}
extern "C" fn workload_common_args(
    _: *mut mtt_workload,
    _: u32,
    _: *const u32,
    _: usize,
) -> mtt_status {
    MTT_FAILED
}
extern "C" fn workload_run(_: *mut mtt_device, _: *mut mtt_workload, _: u32) -> mtt_status {
    enter("workload_run", |log| log.runs += 1)
}
extern "C" fn trace_begin(_: *mut mtt_device, id: *mut u32) -> mtt_status {
    enter("trace_begin", |log| {
        log.alive += 1;
        // SAFETY: it is a place for a number.
        unsafe { *id = 7 };
    })
}
extern "C" fn trace_end(_: *mut mtt_device, _: u32) -> mtt_status {
    enter("trace_end", |_| ())
}
extern "C" fn trace_replay(_: *mut mtt_device, id: u32, _: u32) -> mtt_status {
    assert_eq!(id, 7, "the trace that was begun");
    enter("trace_replay", |log| log.replays += 1)
}
extern "C" fn trace_release(_: *mut mtt_device, _: u32) -> mtt_status {
    LOG.with_borrow_mut(|log| log.alive -= 1);
    MTT_OK
}

/// The table, as if a library had been opened.
pub(crate) fn library() -> Library {
    let api = mtt_api {
        abi: MTT_ABI,
        bytes: size_of::<mtt_api>() as u32,
        library: c"fake".as_ptr(),
        message: Some(message),
        device_open: Some(device_open),
        device_close: Some(device_close),
        device_grid: Some(device_grid),
        device_network: Some(device_network),
        device_finish: Some(device_finish),
        buffer_new: Some(buffer_new),
        buffer_free: Some(buffer_free),
        buffer_address: Some(buffer_address),
        buffer_write: Some(buffer_write),
        buffer_read: Some(buffer_read),
        accessor: Some(accessor),
        program_new: Some(program_new),
        program_free: Some(program_free),
        circular_buffer: Some(circular_buffer),
        semaphore: Some(semaphore),
        kernel: Some(kernel),
        runtime_args: Some(runtime_args),
        common_args: Some(common_args),
        workload_new: Some(workload_new),
        workload_free: Some(workload_free),
        workload_runtime_args: Some(workload_runtime_args),
        workload_common_args: Some(workload_common_args),
        workload_run: Some(workload_run),
        trace_begin: Some(trace_begin),
        trace_end: Some(trace_end),
        trace_replay: Some(trace_replay),
        trace_release: Some(trace_release),
    };
    Library::of(Box::leak(Box::new(api)))
}

mod tests {
    use muse_core::quant::tile::TileFormat;
    use muse_core::{Error, Result};

    use super::*;
    use crate::op::{Binary, binary};
    use crate::{Cores, Device, DeviceOptions, Ids, Matrix, Programs, smoke};

    fn open() -> Result<Device> {
        Device::open(library(), DeviceOptions::default())
    }

    #[test]
    fn handles_come_back_after_a_hundred_rounds() {
        for _ in 0..100 {
            let device = open().unwrap();
            let values = vec![1.5; 64 * 40];
            let a = Matrix::of(&device, TileFormat::Bf16, &values, 40).unwrap();
            assert_eq!(a.read().unwrap(), values);
            let mut programs = Programs::new(&device);
            let plan = binary(Binary::Add, &a, &a, &a, Cores::grid(2, 2));
            programs.run(&plan, true).unwrap();
            let trace = device.trace(|| programs.run(&plan, false)).unwrap();
            trace.replay(true).unwrap();
            drop(trace);
        }
        let log = log();
        assert_eq!((log.alive, log.runs, log.replays), (0, 200, 100));
    }

    #[test]
    #[should_panic(expected = "17 numbers into room for 16")]
    fn more_numbers_than_there_is_room_for_are_refused() {
        let mut ids = Ids::of(&open().unwrap(), &[7; 3]).unwrap();
        ids.write(&[7; 16]).unwrap();
        let _ = ids.write(&[7; 17]);
    }

    #[test]
    fn equal_shapes_are_compiled_once_and_get_new_arguments() {
        let device = open().unwrap();
        let matrix = || Matrix::new(&device, TileFormat::Bf16, 32, 96).unwrap();
        let (a, b, out) = (matrix(), matrix(), matrix());
        let mut programs = Programs::new(&device);
        let run = |programs: &mut Programs, operation, cores| {
            programs.run(&binary(operation, &a, &b, &out, cores), true).unwrap();
        };
        run(&mut programs, Binary::Add, Cores::grid(1, 1));
        let first = log();
        run(&mut programs, Binary::Add, Cores::grid(1, 1));
        let second = log();
        assert_eq!((second.kernels.len(), second.runs), (3, 2));
        assert_eq!(second.args[first.args.len()..], first.args);
        // Three tiles on two cores: the reader of the second one begins at tile 2.
        run(&mut programs, Binary::Add, Cores::grid(2, 1));
        assert_eq!(log().kernels.len(), 6);
        let reader = &log().args[second.args.len()..][1];
        assert_eq!((reader.1, &reader.3[2..]), (1, &[2, 1][..]));
        run(&mut programs, Binary::Gate, Cores::grid(2, 1));
        assert_eq!((log().kernels.len(), programs.len()), (9, 3));
    }

    #[test]
    fn faults_say_who_must_act_and_leave_nothing_behind() {
        for (function, exhausted) in [
            ("device_open", false),
            ("buffer_new", true),
            ("buffer_write", false),
            ("program_new", false),
            ("circular_buffer", true),
            ("kernel", false),
            ("workload_new", false),
            ("workload_run", false),
            ("trace_begin", false),
            ("trace_end", false),
        ] {
            fail_next(function, exhausted);
            let error = (|| {
                let device = open()?;
                let a = Matrix::of(&device, TileFormat::Bfp8, &[1.0; 1024], 32)?;
                let mut programs = Programs::new(&device);
                let plan = binary(Binary::Add, &a, &a, &a, Cores::grid(1, 1));
                programs.run(&plan, true)?;
                device.trace(|| programs.run(&plan, false)).map(drop)
            })();
            let error: Error = error.expect_err(function);
            let message = error.to_string();
            assert!(message.contains("told to fail"), "{function}: {message}");
            assert!(!message.contains("nowhere"), "the backtrace stays out: {message}");
            assert_eq!(matches!(error, Error::Exhausted(_)), exhausted, "{function}");
            assert_eq!(log().alive, 0, "{function}");
        }
    }

    #[test]
    fn what_a_run_failed_with_is_not_kept() {
        let device = open().unwrap();
        let a = Matrix::new(&device, TileFormat::Bf16, 32, 32).unwrap();
        let plan = binary(Binary::Add, &a, &a, &a, Cores::grid(1, 1));
        let mut programs = Programs::new(&device);
        fail_next("workload_run", false);
        programs.run(&plan, true).unwrap_err();
        assert!(programs.is_empty());
        programs.run(&plan, true).unwrap();
    }

    #[test]
    fn a_device_that_multiplies_wrongly_is_refused() {
        let device = open().unwrap();
        let error = smoke(&device, &mut Programs::new(&device)).unwrap_err().to_string();
        assert!(error.contains("tt-setup") && error.contains("expected"), "{error}");
    }
}
