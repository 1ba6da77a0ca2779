//! Traces: sequences of programs that the device records once and replays without the host.

use std::sync::Arc;

use muse_core::Result;
use muse_tt_sys::ffi::mtt_status;

use super::compiled::Compiled;
use crate::device::{Device, DeviceLock};
use crate::error::check;

/// A recording under way. It holds the device lock, so that no other thread's programs are
/// recorded. Dropping it ends and releases the recording.
pub(crate) struct Recording<'a> {
    lock: DeviceLock<'a>,
    id: u32,
    /// What the drop has to do.
    cleanup: Cleanup,
}

#[derive(PartialEq, Eq)]
enum Cleanup {
    EndAndRelease,
    Release,
    Nothing,
}

impl<'a> Recording<'a> {
    pub(crate) fn begin(device: &'a Device) -> Result<Self> {
        let begin = device.api().trace_begin.expect("a vtable has all functions");
        let (lock, mut id) = (device.lock(), 0);
        // SAFETY: the device is open; `id` has space for a number.
        let status = unsafe { begin(lock.raw(), &mut id) };
        check(device.api(), status, RECORDING)?;
        Ok(Self { lock, id, cleanup: Cleanup::EndAndRelease })
    }

    /// The device lock, to start the recorded programs with.
    pub(crate) fn lock(&self) -> &DeviceLock<'a> {
        &self.lock
    }

    /// Ends the recording. The trace keeps `programs`, which it replays.
    pub(super) fn end(mut self, programs: Vec<Arc<Compiled>>) -> Result<Trace> {
        let device = self.lock.device().clone();
        check(device.api(), self.stop(), RECORDING)?;
        self.cleanup = Cleanup::Nothing;
        Ok(Trace { device, id: self.id, _programs: programs })
    }

    fn stop(&mut self) -> mtt_status {
        self.cleanup = Cleanup::Release;
        let end = self.lock.device().api().trace_end.expect("a vtable has all functions");
        // SAFETY: the device is open and records a trace of this id.
        unsafe { end(self.lock.raw(), self.id) }
    }
}

const RECORDING: &str = "recording a trace";

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        // The cause of the drop is reported already; an error here would be a consequence of it.
        if self.cleanup == Cleanup::EndAndRelease {
            self.stop();
        }
        if self.cleanup == Cleanup::Release {
            release(&self.lock, self.id);
        }
    }
}

/// A recorded trace. The buffers that its programs read and write must still exist when it is
/// replayed.
pub struct Trace {
    device: Device,
    id: u32,
    /// Kept alive because the device runs their binaries.
    _programs: Vec<Arc<Compiled>>,
}

impl Trace {
    /// Replays it. Returns after its end if `wait` is set, else as soon as it is enqueued.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn replay(&self, wait: bool) -> Result<()> {
        let replay = self.device.api().trace_replay.expect("a vtable has all functions");
        let lock = self.device.lock();
        // SAFETY: the device is open and the trace is not released.
        let status = unsafe { replay(lock.raw(), self.id, u32::from(wait)) };
        check(self.device.api(), status, "replaying a trace")
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        release(&self.device.lock(), self.id);
    }
}

fn release(lock: &DeviceLock<'_>, id: u32) {
    let release = lock.device().api().trace_release.expect("a vtable has all functions");
    // SAFETY: the device is open and the trace is not released.
    let _ = unsafe { release(lock.raw(), id) };
}
