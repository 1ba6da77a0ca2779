//! An open device and the lock that serializes calls of the host library. Handles are counted: the
//! device closes when the last thing on it is dropped.

use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muse_core::Result;
use muse_tt_sys::ffi::{mtt_api, mtt_device};

use crate::cores::Core;
use crate::error::check;
use crate::watchdog::{Call, Watchdog};

/// How a device is opened.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// Which of the devices of the machine.
    pub id: u32,
    /// Bytes reserved for recorded traces.
    pub trace_bytes: u64,
    /// How long a call may wait for the device before the device counts as lost, which ends the
    /// process; `None` waits without end. Time in which the kernel compiler or a simulator computes
    /// does not count.
    pub timeout: Option<Duration>,
    /// Whether a small product is computed before the device is handed out: nothing else reveals a
    /// host library whose types are laid out differently. Not for devices that compute nothing.
    pub smoke_test: bool,
}

impl Default for DeviceOptions {
    /// The first device, without traces, lost after two minutes without an answer.
    fn default() -> Self {
        Self { id: 0, trace_bytes: 0, timeout: Some(Duration::from_secs(120)), smoke_test: true }
    }
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
    /// Network coordinates of every worker core, row by row.
    network: Vec<(u32, u32)>,
    /// Held during calls of the host library: one thread calls it at a time.
    lock: Mutex<()>,
    watchdog: Watchdog,
}

/// The device lock: while it is held, no other thread calls the host library.
pub(crate) struct DeviceLock<'a> {
    device: &'a Device,
    _guard: MutexGuard<'a, ()>,
    _call: Call<'a>,
}

impl DeviceLock<'_> {
    pub(crate) fn device(&self) -> &Device {
        self.device
    }

    pub(crate) fn raw(&self) -> *mut mtt_device {
        self.device.inner.raw
    }
}

// SAFETY: the host library may be called from any thread, and `lock` allows one call at a time.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Device {
    /// Opens a device of a shim whose host library was checked.
    pub(crate) fn connect(api: &'static mtt_api, options: DeviceOptions) -> Result<Self> {
        let doing = format!(
            "opening Tenstorrent device {} (is there a card in /dev/tenstorrent that no other \
             process holds, or a simulator that TT_METAL_SIMULATOR names?)",
            options.id
        );
        let watchdog = Watchdog::new(options.id, options.timeout);
        let call = watchdog.call();
        let mut raw = ptr::null_mut();
        let open = api.device_open.expect("a vtable has all functions");
        // SAFETY: `raw` has space for one handle.
        let status = unsafe { open(options.id, options.trace_bytes, &mut raw) };
        check(api, status, &doing)?;
        drop(call);
        let lock = Mutex::new(());
        let mut inner = Inner { api, raw, grid: (0, 0), network: Vec::new(), lock, watchdog };
        let (mut columns, mut rows) = (0, 0);
        let grid = api.device_grid.expect("a vtable has all functions");
        // SAFETY: the device is open; both pointers have space for a number.
        let status = unsafe { grid(raw, &mut columns, &mut rows) };
        check(api, status, &doing)?;
        inner.grid = (columns, rows);
        let network = api.device_network.expect("a vtable has all functions");
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)))
        {
            let (mut x, mut y) = (0, 0);
            // SAFETY: the device is open; both pointers have space for a number.
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

    /// Network coordinates of a worker core, for transfers between cores.
    pub fn network(&self, core: Core) -> (u32, u32) {
        self.inner.network[(core.row * self.inner.grid.0 + core.column) as usize]
    }

    pub(crate) fn api(&self) -> &'static mtt_api {
        self.inner.api
    }

    /// Waits until no other thread calls the host library.
    pub(crate) fn lock(&self) -> DeviceLock<'_> {
        // The mutex guards no data that a panic could leave inconsistent.
        let guard = self.inner.lock.lock().unwrap_or_else(PoisonError::into_inner);
        DeviceLock { device: self, _guard: guard, _call: self.inner.watchdog.call() }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let close = self.api.device_close.expect("a vtable has all functions");
        let _call = self.watchdog.call();
        // SAFETY: this is the last handle; everything on the device held one.
        // A drop cannot report an error.
        let _ = unsafe { close(self.raw) };
    }
}
