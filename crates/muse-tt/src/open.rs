//! Opening the shim of this build and a device, which is tested before it is handed out.

use std::path::Path;

use muse_core::{Error, Result};
use muse_tt_sys::{Library, SHIM};

use crate::device::{Device, DeviceOptions};
use crate::error::device_error;
use crate::program::Programs;
use crate::smoke_test::smoke_test;

/// Host libraries that this crate was tested with; `local` is one that the machine has installed.
const TESTED_HOST_LIBRARIES: [&str; 2] = ["ttnn-0.76.0", "local"];

/// Opens the shim that this build compiled.
///
/// # Errors
/// [`Error::Unsupported`] in a build without the feature `tt`, [`Error::Device`] when the library
/// is missing or belongs to another build.
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
    library.map_err(|error| device_error("opening Tenstorrent's host library", error.to_string()))
}

impl Device {
    /// Opens a device, and runs a small product on it if [`DeviceOptions::smoke_test`] is set.
    ///
    /// # Errors
    /// [`Error::Device`] when the shim was compiled for an untested host library, when there is no
    /// device, or when the device does not answer or computes a wrong product.
    pub fn open(library: Library, options: DeviceOptions) -> Result<Self> {
        let host = library.host();
        if !TESTED_HOST_LIBRARIES.contains(&host.as_ref()) {
            return Err(device_error(
                "opening Tenstorrent's host library",
                format!(
                    "the shim was compiled for {host}, expected one of {TESTED_HOST_LIBRARIES:?}; \
                     run `cargo xtask tt-setup DIR` and build with the feature `tt` again"
                ),
            ));
        }
        let device = Self::connect(library.api(), options)?;
        if options.smoke_test {
            smoke_test(&device, &mut Programs::new(&device))?;
        }
        Ok(device)
    }
}
