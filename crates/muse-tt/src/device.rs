//! An open device. Handles are counted: it closes when the last thing on it is gone.

use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muse_core::{Error, Result};
use muse_tt_sys::ffi::{mtt_api, mtt_device};
use muse_tt_sys::{Library, SHIM};

use crate::cores::Core;
use crate::error::{check, device as fault};
use crate::program::Programs;
use crate::smoke::smoke;
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
    // SAFETY: the build script compiled this library from the shim in this tree.
    let library = unsafe { Library::open(Path::new(path)) };
    library.map_err(|error| fault("opening Tenstorrent's host library", error.to_string()))
}

/// How a device is opened.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOptions {
    /// Which of the machine's devices.
    pub id: u32,
    /// Bytes for recorded traces.
    pub trace_bytes: u64,
    /// How long the device may take to answer before it counts as lost, which ends the process;
    /// none waits without end. The first run of a program waits for its compiler too.
    pub patience: Option<Duration>,
    /// Whether a product is tried before the device is handed out: nothing else shows a host
    /// library that lays things out differently. Not for devices that compute nothing.
    pub smoke: bool,
}

impl Default for DeviceOptions {
    /// The first device, without traces, lost after two minutes: a compiler takes seconds.
    fn default() -> Self {
        Self { id: 0, trace_bytes: 0, patience: Some(Duration::from_secs(120)), smoke: true }
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
    /// Of every worker core, row by row.
    network: Vec<(u32, u32)>,
    /// The host library is called by one thread at a time.
    turn: Mutex<()>,
    watch: Watch,
}

/// Held while the host library works: nobody else calls it meanwhile.
pub(crate) struct Turn<'a> {
    device: &'a Device,
    _alone: MutexGuard<'a, ()>,
    _call: Call<'a>,
}

impl Turn<'_> {
    pub(crate) fn device(&self) -> &Device {
        self.device
    }

    pub(crate) fn raw(&self) -> *mut mtt_device {
        self.device.inner.raw
    }
}

// SAFETY: the host library does not care which thread calls it, and `turn` lets one call at a time.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Device {
    /// Opens a device, and tries a product on it when told.
    ///
    /// # Errors
    /// [`Error::Device`] when the library is another one than was tried, when there is no device,
    /// or when it does not answer or multiplies wrongly.
    pub fn open(library: Library, options: DeviceOptions) -> Result<Self> {
        let host = library.host();
        if !TRIED.contains(&host.as_ref()) {
            return Err(fault(
                "opening Tenstorrent's host library",
                format!(
                    "the shim was compiled for {host}, expected one of {TRIED:?}; run `cargo xtask \
                     tt-setup DIR` and build with the feature `tt` again"
                ),
            ));
        }
        let device = Self::connect(library.api(), options)?;
        if options.smoke {
            smoke(&device, &mut Programs::new(&device))?;
        }
        Ok(device)
    }

    fn connect(api: &'static mtt_api, options: DeviceOptions) -> Result<Self> {
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

    pub(crate) fn api(&self) -> &'static mtt_api {
        self.inner.api
    }

    /// Waits for everybody else to be done with the host library.
    pub(crate) fn turn(&self) -> Turn<'_> {
        // There is nothing in it that a panic could have left half done.
        let alone = self.inner.turn.lock().unwrap_or_else(PoisonError::into_inner);
        Turn { device: self, _alone: alone, _call: self.inner.watch.call() }
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
