//! Programs that are recorded once, to be run again without the host.

use std::sync::Arc;

use muse_core::Result;
use muse_tt_sys::ffi::mtt_status;

use crate::device::{Device, Turn};
use crate::error::check;
use crate::program::Compiled;

/// A recording under way. It holds the device's turn, so that nobody else's programs are recorded,
/// and ends with it, however that comes about.
pub(crate) struct Recording<'a> {
    turn: Turn<'a>,
    id: u32,
    /// What is to be done when it is dropped.
    left: Left,
}

#[derive(PartialEq, Eq)]
enum Left {
    ToEnd,
    ToRelease,
    Nothing,
}

impl<'a> Recording<'a> {
    pub(crate) fn begin(device: &'a Device) -> Result<Self> {
        let begin = device.api().trace_begin.expect("a table has all functions");
        let (turn, mut id) = (device.turn(), 0);
        // SAFETY: the device is open; `id` is a place for a number.
        let status = unsafe { begin(turn.raw(), &mut id) };
        check(device.api(), status, RECORDING)?;
        Ok(Self { turn, id, left: Left::ToEnd })
    }

    /// What programs are started with while this records.
    pub(crate) fn turn(&self) -> &Turn<'a> {
        &self.turn
    }

    /// The trace, which keeps the programs that it runs.
    pub(crate) fn end(mut self, programs: Vec<Arc<Compiled>>) -> Result<Trace> {
        let device = self.turn.device().clone();
        check(device.api(), self.stop(), RECORDING)?;
        self.left = Left::Nothing;
        Ok(Trace { device, id: self.id, _programs: programs })
    }

    fn stop(&mut self) -> mtt_status {
        self.left = Left::ToRelease;
        let end = self.turn.device().api().trace_end.expect("a table has all functions");
        // SAFETY: the device is open and records under this number.
        unsafe { end(self.turn.raw(), self.id) }
    }
}

const RECORDING: &str = "recording a trace";

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        // Whoever dropped it has an error of his own; what fails now comes of the same.
        if self.left == Left::ToEnd {
            self.stop();
        }
        if self.left == Left::ToRelease {
            release(&self.turn, self.id);
        }
    }
}

/// What a device recorded. The buffers that its programs read and write must be there when it is
/// replayed.
pub struct Trace {
    device: Device,
    id: u32,
    /// The device runs them from where they were loaded for these.
    _programs: Vec<Arc<Compiled>>,
}

impl Trace {
    /// Runs it again; returns when it has ended if `wait` is set.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn replay(&self, wait: bool) -> Result<()> {
        let replay = self.device.api().trace_replay.expect("a table has all functions");
        let turn = self.device.turn();
        // SAFETY: the device is open and the trace is not released.
        let status = unsafe { replay(turn.raw(), self.id, u32::from(wait)) };
        check(self.device.api(), status, "replaying a trace")
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        release(&self.device.turn(), self.id);
    }
}

fn release(turn: &Turn<'_>, id: u32) {
    let release = turn.device().api().trace_release.expect("a table has all functions");
    // SAFETY: the device is open and the trace is not released.
    let _ = unsafe { release(turn.raw(), id) };
}
