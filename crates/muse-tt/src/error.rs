//! Status codes of the shim as errors.

use std::error::Error as StdError;
use std::ffi::CStr;
use std::fmt;
use std::sync::Arc;

use muse_core::{Error, Result};
use muse_tt_sys::ffi::{MTT_EXHAUSTED, MTT_OK, mtt_api, mtt_status};

/// The message of an error of the host library.
#[derive(Debug)]
struct HostLibraryError(String);

impl fmt::Display for HostLibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for HostLibraryError {}

/// Turns a status into a result. `doing` is the operation for the message.
pub(crate) fn check(api: &mtt_api, status: mtt_status, doing: &str) -> Result<()> {
    if status == MTT_OK {
        return Ok(());
    }
    let message = api.message.expect("a vtable has all functions");
    // SAFETY: the function has no precondition and returns a string of this thread that is valid
    // until the next call that fails.
    let text = unsafe { message() };
    // SAFETY: as above; it is terminated by a zero.
    let text = unsafe { CStr::from_ptr(text) };
    // The host library appends a long backtrace; the lines before it describe the error.
    let text = text.to_string_lossy();
    let text = text.split("backtrace:").next().unwrap_or_default().trim().to_owned();
    if status == MTT_EXHAUSTED {
        return Err(Error::Exhausted(format!(
            "{doing}: the device has no memory left ({text}); run with a shorter context or fewer \
             sequences"
        )));
    }
    Err(device_error(doing, text))
}

/// A device error with a message of our own.
pub(crate) fn device_error(doing: &str, text: impl Into<String>) -> Error {
    Error::Device { doing: doing.to_owned(), source: Arc::new(HostLibraryError(text.into())) }
}
