//! A fake shim vtable for unit tests: buffers are host memory, kernels are recorded but not run,
//! and any call can be made to fail. Its state is thread-local, as each test has a thread of its
//! own.

mod tests;

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};

use muse_tt_sys::Library;
use muse_tt_sys::ffi::{
    MTT_ABI, MTT_EXHAUSTED, MTT_FAILED, MTT_OK, mtt_api, mtt_buffer, mtt_cores, mtt_device,
    mtt_format, mtt_kernel, mtt_memory, mtt_program, mtt_status, mtt_workload,
};

use crate::device::DeviceOptions;

/// What was called so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    /// Calls of functions that can fail, in order.
    pub(crate) calls: Vec<&'static str>,
    /// Handles of all kinds that were not freed.
    pub(crate) alive: i64,
    /// Bytes that the host read or wrote.
    pub(crate) moved: u64,
    /// Sources of the kernels of all programs.
    pub(crate) kernels: Vec<String>,
    /// Semaphores of the program under construction.
    pub(crate) semaphores: u32,
    /// Runtime arguments in the order they were set: kernel, column, row, words.
    pub(crate) args: Vec<(u32, u32, u32, Vec<u32>)>,
    /// Common arguments in the order they were set: kernel, words.
    pub(crate) common: Vec<(u32, Vec<u32>)>,
    /// Workloads that ran, or were recorded.
    pub(crate) runs: usize,
    /// Whether a trace is being recorded.
    pub(crate) is_recording: bool,
    /// Traces that were replayed.
    pub(crate) replays: usize,
}

thread_local! {
    static LOG: RefCell<Log> = RefCell::default();
    static FAULT: Cell<Option<(usize, mtt_status)>> = const { Cell::new(None) };
}

/// The calls of this thread so far.
pub(crate) fn log() -> Log {
    LOG.with_borrow(Clone::clone)
}

/// Clears the recorded calls, and makes call `at` from now on fail, as exhausted memory or
/// otherwise.
pub(crate) fn fail_at(at: usize, exhausted: bool) {
    LOG.with_borrow_mut(|log| log.calls.clear());
    FAULT.set(Some((at, if exhausted { MTT_EXHAUSTED } else { MTT_FAILED })));
}

/// Records a call of a function that can fail, and acts unless it is the one to fail.
fn call(function: &'static str, act: impl FnOnce(&mut Log)) -> mtt_status {
    LOG.with_borrow_mut(|log| {
        log.calls.push(function);
        match FAULT.get() {
            Some((at, status)) if at == log.calls.len() - 1 => status,
            _ => {
                act(log);
                MTT_OK
            }
        }
    })
}

/// Returns a new handle that owns `value`.
fn hand_out<T, H>(out: *mut *mut H, value: T) {
    // SAFETY: callers of the vtable pass space for one handle.
    unsafe { *out = Box::into_raw(Box::new(value)).cast() };
}

/// Frees a handle.
fn take_back<T, H>(log: &mut Log, handle: *mut H) {
    log.alive -= 1;
    // SAFETY: the handle was made from a box of this type, and is freed once.
    drop(unsafe { Box::from_raw(handle.cast::<T>()) });
}

fn copied(words: *const u32, count: usize) -> Vec<u32> {
    // SAFETY: callers of the vtable pass a right count.
    unsafe { std::slice::from_raw_parts(words, count) }.to_vec()
}

extern "C" fn message() -> *const c_char {
    c"planted error\nbacktrace:\n --- nowhere".as_ptr()
}
extern "C" fn device_open(_: u32, _: u64, out: *mut *mut mtt_device) -> mtt_status {
    call("device_open", |log| {
        log.alive += 1;
        hand_out(out, 0_u8);
    })
}
extern "C" fn device_close(device: *mut mtt_device) -> mtt_status {
    // The shim closes the device also when it reports an error.
    LOG.with_borrow_mut(|log| take_back::<u8, _>(log, device));
    call("device_close", |_| ())
}
extern "C" fn device_grid(_: *mut mtt_device, x: *mut u32, y: *mut u32) -> mtt_status {
    call("device_grid", |_| {
        // SAFETY: both point to a number.
        unsafe { *x = 13 };
        // SAFETY: as above.
        unsafe { *y = 10 };
    })
}
extern "C" fn device_network(
    _: *mut mtt_device,
    column: u32,
    row: u32,
    x: *mut u32,
    y: *mut u32,
) -> mtt_status {
    call("device_network", |_| {
        // SAFETY: both point to a number.
        unsafe { *x = column + 1 };
        // SAFETY: as above.
        unsafe { *y = row + 2 };
    })
}
extern "C" fn buffer_new(
    _: *mut mtt_device,
    _: mtt_memory,
    bytes: u64,
    _: u32,
    out: *mut *mut mtt_buffer,
) -> mtt_status {
    call("buffer_new", |log| {
        log.alive += 1;
        hand_out(out, vec![0_u8; bytes as usize]);
    })
}
extern "C" fn buffer_free(buffer: *mut mtt_buffer) {
    LOG.with_borrow_mut(|log| take_back::<Vec<u8>, _>(log, buffer));
}
extern "C" fn buffer_address(_: *const mtt_buffer) -> u64 {
    4096
}
extern "C" fn buffer_write(
    to: *mut mtt_buffer,
    at: u64,
    from: *const c_void,
    bytes: u64,
) -> mtt_status {
    call("buffer_write", |log| {
        log.moved += bytes;
        // SAFETY: the handle was made from a vector.
        let to = unsafe { &mut *to.cast::<Vec<u8>>() };
        // SAFETY: the caller passes the length of its bytes.
        let from = unsafe { std::slice::from_raw_parts(from.cast(), bytes as usize) };
        to[at as usize..][..bytes as usize].copy_from_slice(from);
    })
}
extern "C" fn buffer_read(
    from: *mut mtt_buffer,
    at: u64,
    to: *mut c_void,
    bytes: u64,
) -> mtt_status {
    call("buffer_read", |log| {
        log.moved += bytes;
        // SAFETY: the handle was made from a vector.
        let from = unsafe { &*from.cast::<Vec<u8>>() };
        // SAFETY: the caller passes the length of its space.
        let to = unsafe { std::slice::from_raw_parts_mut(to.cast(), bytes as usize) };
        to.copy_from_slice(&from[at as usize..][..bytes as usize]);
    })
}
extern "C" fn accessor(_: mtt_memory, args: *mut u32, count: *mut usize) -> mtt_status {
    call("accessor", |_| {
        // SAFETY: the caller has space for several words.
        unsafe { *args = 2 };
        // SAFETY: it points to a number.
        unsafe { *count = 1 };
    })
}
extern "C" fn program_new(out: *mut *mut mtt_program) -> mtt_status {
    call("program_new", |log| {
        log.alive += 1;
        log.semaphores = 0;
        hand_out(out, 0_u16);
    })
}
extern "C" fn program_free(program: *mut mtt_program) {
    LOG.with_borrow_mut(|log| take_back::<u16, _>(log, program));
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
    call("circular_buffer", |_| ())
}
extern "C" fn semaphore(
    _: *mut mtt_program,
    _: *const mtt_cores,
    _: usize,
    _: u32,
    id: *mut u32,
) -> mtt_status {
    call("semaphore", |log| {
        // SAFETY: it points to a number.
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
    call("kernel", |log| {
        // SAFETY: the kernel of the caller is valid during the call.
        let source = unsafe { (*kernel).source };
        // SAFETY: its source is terminated by a zero.
        let source = unsafe { CStr::from_ptr(source) };
        // SAFETY: it points to a number.
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
    call("runtime_args", |log| log.args.push((kernel, column, row, copied(words, count))))
}
extern "C" fn common_args(
    _: *mut mtt_program,
    kernel: u32,
    words: *const u32,
    count: usize,
) -> mtt_status {
    call("common_args", |log| log.common.push((kernel, copied(words, count))))
}
extern "C" fn workload_new(program: *mut mtt_program, out: *mut *mut mtt_workload) -> mtt_status {
    LOG.with_borrow_mut(|log| take_back::<u16, _>(log, program));
    call("workload_new", |log| {
        log.alive += 1;
        hand_out(out, 0_u32);
    })
}
extern "C" fn workload_free(workload: *mut mtt_workload) {
    LOG.with_borrow_mut(|log| take_back::<u32, _>(log, workload));
}
extern "C" fn workload_runtime_args(
    _: *mut mtt_workload,
    kernel: u32,
    column: u32,
    row: u32,
    words: *const u32,
    count: usize,
) -> mtt_status {
    call("workload_runtime_args", |log| log.args.push((kernel, column, row, copied(words, count))))
}
extern "C" fn workload_common_args(
    _: *mut mtt_workload,
    kernel: u32,
    words: *const u32,
    count: usize,
) -> mtt_status {
    call("workload_common_args", |log| log.common.push((kernel, copied(words, count))))
}
extern "C" fn workload_run(_: *mut mtt_device, _: *mut mtt_workload, _: u32) -> mtt_status {
    call("workload_run", |log| log.runs += 1)
}
extern "C" fn trace_begin(_: *mut mtt_device, id: *mut u32) -> mtt_status {
    call("trace_begin", |log| {
        assert!(!log.is_recording, "one recording at a time");
        (log.alive, log.is_recording) = (log.alive + 1, true);
        // SAFETY: it points to a number.
        unsafe { *id = 7 };
    })
}
extern "C" fn trace_end(_: *mut mtt_device, _: u32) -> mtt_status {
    // The shim ends the recording also when it reports an error.
    LOG.with_borrow_mut(|log| {
        assert!(std::mem::take(&mut log.is_recording), "a recording under way")
    });
    call("trace_end", |_| ())
}
extern "C" fn trace_replay(_: *mut mtt_device, id: u32, _: u32) -> mtt_status {
    assert_eq!(id, 7, "the trace that was begun");
    call("trace_replay", |log| log.replays += 1)
}
extern "C" fn trace_release(_: *mut mtt_device, _: u32) -> mtt_status {
    LOG.with_borrow_mut(|log| {
        assert!(!log.is_recording, "a recording ends before it is released");
        log.alive -= 1;
    });
    call("trace_release", |_| ())
}

/// Options for the fake device, which computes nothing and would fail the smoke test.
pub(crate) const OPTIONS: DeviceOptions =
    DeviceOptions { id: 0, trace_bytes: 0, timeout: None, smoke_test: false };

/// The vtable of a shim for the tested host library.
pub(crate) fn library() -> Library {
    compiled_for(Some(c"ttnn-0.76.0"))
}

/// The vtable of a shim for host library `host`.
fn compiled_for(host: Option<&'static CStr>) -> Library {
    let api = mtt_api {
        abi: MTT_ABI,
        bytes: size_of::<mtt_api>() as u32,
        library: host.map_or(std::ptr::null(), CStr::as_ptr),
        message: Some(message),
        device_open: Some(device_open),
        device_close: Some(device_close),
        device_grid: Some(device_grid),
        device_network: Some(device_network),
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
    // SAFETY: all functions are present, and each test uses one thread.
    unsafe { Library::from_vtable(Box::leak(Box::new(api))) }
}
