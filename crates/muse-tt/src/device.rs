//! An open device and what is allocated on it. Handles are counted: a device closes when the last
//! thing on it is gone.

use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muse_core::{Error, Result};
use muse_tt_sys::ffi::{MTT_DRAM, MTT_L1, mtt_api, mtt_buffer, mtt_device, mtt_memory};
use muse_tt_sys::{LIBRARY, Library, SHIM};

use crate::cores::Core;
use crate::error::{check, device as fault};
use crate::watch::{Call, Watch};

/// The host library that everything was tried with; one of the machine calls itself local.
const TRIED: [&str; 2] = ["ttnn-0.76.0", "local"];

/// Opens the shim that this build made.
///
/// # Errors
/// [`Error::Unsupported`] in a build without the feature `tt`, [`Error::Device`] when the library
/// is missing or of another build.
pub fn open_shim() -> Result<Library> {
    let Some(path) = SHIM else {
        return Err(Error::Unsupported(
            "this build cannot open Tenstorrent devices: run `cargo xtask tt-setup DIR`, set \
             MUSE_TT_DIR=DIR and build with the feature `tt`"
                .to_owned(),
        ));
    };
    let known = LIBRARY.is_some_and(|library| TRIED.contains(&library));
    if !known {
        return Err(fault(
            "opening Tenstorrent's host library",
            format!(
                "the shim was compiled for {LIBRARY:?}, expected one of {TRIED:?}; run tt-setup again"
            ),
        ));
    }
    // SAFETY: the build script compiled this library from the shim in this tree.
    let library = unsafe { Library::open(Path::new(path)) };
    library.map_err(|error| fault("opening Tenstorrent's host library", error.to_string()))
}

/// How a device is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceOptions {
    /// Which of the machine's devices.
    pub id: u32,
    /// Bytes for recorded traces.
    pub trace_bytes: u64,
    /// How long the device may take to answer before it counts as lost, which ends the process;
    /// none waits without end. The first run of a program waits for its compiler too.
    pub patience: Option<Duration>,
}

/// An open device. Clones are the same device.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    api: &'static mtt_api,
    raw: *mut mtt_device,
    grid: (u32, u32),
    /// Of every worker core, row by row.
    network: Vec<(u32, u32)>,
    /// The host library is called by one thread at a time.
    turn: Mutex<()>,
    watch: Watch,
}

/// Held while the host library works.
pub(crate) struct Turn<'a> {
    _alone: MutexGuard<'a, ()>,
    _call: Call<'a>,
}

// SAFETY: the host library does not care which thread calls it, and `turn` lets one call at a time.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// [`Error::Device`] when there is none, or it does not answer.
    pub fn open(library: Library, options: DeviceOptions) -> Result<Self> {
        let api = library.api();
        let doing = format!(
            "opening Tenstorrent device {} (is there a card in /dev/tenstorrent that no other \
             process holds, or a simulator that TT_METAL_SIMULATOR names?)",
            options.id
        );
        let watch = Watch::new(options.id, options.patience);
        let call = watch.call();
        let mut raw = ptr::null_mut();
        let open = api.device_open.expect("a table has all functions");
        // SAFETY: `raw` is a place for one handle.
        let status = unsafe { open(options.id, options.trace_bytes, &mut raw) };
        check(api, status, &doing)?;
        drop(call);
        let turn = Mutex::new(());
        let mut inner = Inner { api, raw, grid: (0, 0), network: Vec::new(), turn, watch };
        let (mut columns, mut rows) = (0, 0);
        let grid = api.device_grid.expect("a table has all functions");
        // SAFETY: the device is open; both numbers are places for one.
        let status = unsafe { grid(raw, &mut columns, &mut rows) };
        check(api, status, &doing)?;
        inner.grid = (columns, rows);
        let network = api.device_network.expect("a table has all functions");
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)))
        {
            let (mut x, mut y) = (0, 0);
            // SAFETY: the device is open; both numbers are places for one.
            let status = unsafe { network(raw, column, row, &mut x, &mut y) };
            check(api, status, &doing)?;
            inner.network.push((x, y));
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Columns and rows of worker cores.
    pub fn grid(&self) -> (u32, u32) {
        self.inner.grid
    }

    /// Where a worker core lies on the network, for multicasts.
    pub fn network(&self, core: Core) -> (u32, u32) {
        self.inner.network[(core.row * self.inner.grid.0 + core.column) as usize]
    }

    /// Waits until everything that was started has ended.
    ///
    /// # Errors
    /// [`Error::Device`] when something failed.
    pub fn finish(&self) -> Result<()> {
        let finish = self.api().device_finish.expect("a table has all functions");
        let _turn = self.turn();
        // SAFETY: the device is open as long as this handle lives.
        check(self.api(), unsafe { finish(self.raw()) }, "waiting for the device")
    }

    /// Records what `run` starts, to be run again without the host. Everything in it must have run
    /// before, and may allocate nothing.
    ///
    /// # Errors
    /// Those of `run`; [`Error::Device`] when the device cannot record.
    pub fn trace(&self, run: impl FnOnce() -> Result<()>) -> Result<Trace> {
        let begin = self.api().trace_begin.expect("a table has all functions");
        let mut id = 0;
        // SAFETY: the device is open; `id` is a place for a number.
        let status = self.in_turn(|raw| unsafe { begin(raw, &mut id) });
        check(self.api(), status, "recording a trace")?;
        let ran = run();
        let end = self.api().trace_end.expect("a table has all functions");
        // SAFETY: the device is open and records under this number.
        let status = self.in_turn(|raw| unsafe { end(raw, id) });
        // A failed recording is released too.
        let trace = Trace { device: self.clone(), id };
        ran?;
        check(self.api(), status, "recording a trace")?;
        Ok(trace)
    }

    pub(crate) fn api(&self) -> &'static mtt_api {
        self.inner.api
    }

    pub(crate) fn raw(&self) -> *mut mtt_device {
        self.inner.raw
    }

    /// Held while the host library works.
    pub(crate) fn turn(&self) -> Turn<'_> {
        // There is nothing in it that a panic could have left half done.
        let alone = self.inner.turn.lock().unwrap_or_else(PoisonError::into_inner);
        Turn { _alone: alone, _call: self.inner.watch.call() }
    }

    fn in_turn<T>(&self, call: impl FnOnce(*mut mtt_device) -> T) -> T {
        let _turn = self.turn();
        call(self.raw())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let close = self.api.device_close.expect("a table has all functions");
        let _call = self.watch.call();
        // SAFETY: this is the last handle, everything on the device held one.
        // What fails now has nobody to tell.
        let _ = unsafe { close(self.raw) };
    }
}

/// What a device recorded.
pub struct Trace {
    device: Device,
    id: u32,
}

impl Trace {
    /// Runs it again; returns when it has ended if `wait` is set.
    ///
    /// # Errors
    /// [`Error::Device`] when the device fails.
    pub fn replay(&self, wait: bool) -> Result<()> {
        let replay = self.device.api().trace_replay.expect("a table has all functions");
        // SAFETY: the device is open and the trace is not released.
        let status = self.device.in_turn(|raw| unsafe { replay(raw, self.id, u32::from(wait)) });
        check(self.device.api(), status, "replaying a trace")
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let release = self.device.api().trace_release.expect("a table has all functions");
        // SAFETY: the device is open and the trace is not released.
        let _ = self.device.in_turn(|raw| unsafe { release(raw, self.id) });
    }
}

/// Bytes in the memory of a device, in pages that its banks hold in turn.
pub struct Buffer {
    device: Device,
    raw: *mut mtt_buffer,
    bytes: u64,
    page_bytes: u32,
}

// SAFETY: as of the device; a buffer is reached through its device's turn.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `bytes`, a whole number of pages.
    ///
    /// # Errors
    /// [`Error::Exhausted`] when the device has no room.
    pub fn new(device: &Device, bytes: u64, page_bytes: u32) -> Result<Self> {
        Self::within(device, MTT_DRAM, bytes, page_bytes)
    }

    /// Allocates a page in the memory of every core, at the same address.
    pub(crate) fn in_cores(device: &Device, bytes: u64, page_bytes: u32) -> Result<Self> {
        Self::within(device, MTT_L1, bytes, page_bytes)
    }

    fn within(device: &Device, memory: mtt_memory, bytes: u64, page_bytes: u32) -> Result<Self> {
        assert!(bytes > 0 && bytes.is_multiple_of(u64::from(page_bytes)), "whole pages");
        let new = device.api().buffer_new.expect("a table has all functions");
        let mut raw = ptr::null_mut();
        // SAFETY: the device is open; `raw` is a place for one handle.
        let status = device.in_turn(|at| unsafe { new(at, memory, bytes, page_bytes, &mut raw) });
        check(device.api(), status, &format!("allocating {bytes} bytes"))?;
        Ok(Self { device: device.clone(), raw, bytes, page_bytes })
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// The device it lies on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Where kernels find it.
    pub fn address(&self) -> u64 {
        let address = self.device.api().buffer_address.expect("a table has all functions");
        // SAFETY: the buffer is allocated.
        unsafe { address(self.raw) }
    }

    /// Fills all of it.
    ///
    /// # Errors
    /// [`Error::Device`] when the device fails.
    pub fn write(&self, from: &[u8]) -> Result<()> {
        assert_eq!(from.len() as u64, self.bytes, "a transfer is as large as its buffer");
        let write = self.device.api().buffer_write.expect("a table has all functions");
        let to = self.raw;
        // SAFETY: the buffer is allocated and as large as `from`.
        let status =
            self.device.in_turn(|_| unsafe { write(to, from.as_ptr().cast(), self.bytes) });
        check(self.device.api(), status, "writing to the device")
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// [`Error::Device`] when the device fails.
    pub fn read(&self, to: &mut [u8]) -> Result<()> {
        assert_eq!(to.len() as u64, self.bytes, "a transfer is as large as its buffer");
        let read = self.device.api().buffer_read.expect("a table has all functions");
        let (from, to) = (self.raw, to.as_mut_ptr().cast());
        // SAFETY: the buffer is allocated and as large as `to`.
        let status = self.device.in_turn(|_| unsafe { read(from, to, self.bytes) });
        check(self.device.api(), status, "reading from the device")
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let free = self.device.api().buffer_free.expect("a table has all functions");
        // SAFETY: nobody else holds the buffer, and the device is still open.
        self.device.in_turn(|_| unsafe { free(self.raw) });
    }
}
