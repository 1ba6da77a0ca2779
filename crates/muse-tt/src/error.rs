//! Codes of the shim as errors.

use std::error::Error as StdError;
use std::ffi::CStr;
use std::fmt;
use std::sync::Arc;

use muse_core::{Error, Result};
use muse_tt_sys::ffi::{MTT_EXHAUSTED, MTT_OK, mtt_api, mtt_status};

/// What the host library said.
#[derive(Debug)]
struct Said(String);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Said {}

/// Turns a status into a result. `doing` says what was tried.
pub(crate) fn check(api: &mtt_api, status: mtt_status, doing: &str) -> Result<()> {
    if status == MTT_OK {
        return Ok(());
    }
    let message = api.message.expect("a table has all functions");
    // SAFETY: the function takes nothing and answers with a string of this thread that stays until
    // the next call that fails.
    let said = unsafe { message() };
    // SAFETY: as above; it ends in a zero.
    let said = unsafe { CStr::from_ptr(said) };
    // The host library appends pages of backtrace; its first lines say what happened.
    let said = said.to_string_lossy();
    let said = said.split("backtrace:").next().unwrap_or_default().trim().to_owned();
    if status == MTT_EXHAUSTED {
        return Err(Error::Exhausted(format!(
            "{doing}: the device has no memory left ({said}); run with a shorter context or fewer \
             sequences"
        )));
    }
    Err(device(doing, said))
}

/// An error of the device.
pub(crate) fn device(doing: &str, said: impl Into<String>) -> Error {
    Error::Device { doing: doing.to_owned(), source: Arc::new(Said(said.into())) }
}
