//! Opens the shim and checks that its vtable is that of these bindings.

use std::borrow::Cow;
use std::error::Error;
use std::ffi::CStr;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::ffi::{MTT_ABI, mtt_api};

/// The function that the shim exports.
const ENTRY: &[u8] = b"muse_tt_api\0";

/// An open shim. It is never closed, because the host library registers functions that run when the
/// process exits.
#[derive(Clone, Copy)]
pub struct Library {
    api: &'static mtt_api,
}

/// Why the shim cannot be used.
#[derive(Debug)]
pub enum LoadError {
    /// The shim or a library that it needs is missing or damaged.
    Missing(PathBuf, libloading::Error),
    /// The shim returned no vtable.
    NoVtable(PathBuf),
    /// The shim was compiled from another header. ABI version and bytes of the vtable, found and
    /// expected.
    WrongAbi(PathBuf, (u32, usize), (u32, usize)),
}

impl Library {
    /// Opens the shim at `path`.
    ///
    /// # Errors
    /// [`LoadError`] when there is no library, or it is not a shim of these bindings.
    ///
    /// # Safety
    /// `path` must be a shim compiled from `shim/muse_tt.cpp`: a library runs code when it
    /// is opened, and its vtable is trusted once its version and size agree.
    pub unsafe fn open(path: &Path) -> Result<Self, LoadError> {
        let missing = |error| LoadError::Missing(path.to_owned(), error);
        // SAFETY: the caller guarantees what the library does when it is opened.
        let library = unsafe { libloading::Library::new(path) }.map_err(missing)?;
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        // SAFETY: a shim exports the entry with this type, as its header declares it.
        let entry = unsafe { library.get::<unsafe extern "C" fn() -> *const mtt_api>(ENTRY) };
        let entry = entry.map_err(missing)?;
        // SAFETY: it has no precondition and returns a vtable that lives as long as the library.
        let vtable = unsafe { entry() };
        if vtable.is_null() {
            return Err(LoadError::NoVtable(path.to_owned()));
        }
        // SAFETY: it is not null, and every version of the vtable begins with its version and size.
        let head = unsafe { vtable.cast::<[u32; 2]>().read() };
        let (found, expected) = ((head[0], head[1] as usize), (MTT_ABI, size_of::<mtt_api>()));
        if found != expected {
            return Err(LoadError::WrongAbi(path.to_owned(), found, expected));
        }
        // SAFETY: version and size agree, and the library is never closed.
        let api = unsafe { &*vtable };
        // SAFETY: a vtable of this version and size does what the header says.
        Ok(unsafe { Self::from_vtable(api) })
    }

    /// A library from a vtable, for tests without a shim.
    ///
    /// # Safety
    /// All functions of the vtable are present and do what `shim/muse_tt.h` says, called
    /// by any thread. Its `library` is null or a C string that lives as long as the vtable.
    pub unsafe fn from_vtable(api: &'static mtt_api) -> Self {
        Self { api }
    }

    /// The name and version of the host library that the shim was compiled for, or `none`.
    pub fn host(&self) -> Cow<'static, str> {
        if self.api.library.is_null() {
            return Cow::Borrowed("none");
        }
        // SAFETY: it is not null, and then a C string that lives as long as the vtable.
        unsafe { CStr::from_ptr(self.api.library) }.to_string_lossy()
    }

    /// The vtable.
    pub fn api(&self) -> &'static mtt_api {
        self.api
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path, error) => write!(
                f,
                "{}: {error}; run `cargo xtask tt-setup` and build with the feature `tt` again",
                path.display()
            ),
            Self::NoVtable(path) => write!(
                f,
                "{} returns no vtable; it is damaged, build with the feature `tt` again",
                path.display()
            ),
            Self::WrongAbi(path, found, expected) => write!(
                f,
                "{} has version {} and a vtable of {} bytes, expected {} and {}; it belongs to \
                 another build, build with the feature `tt` again",
                path.display(),
                found.0,
                found.1,
                expected.0,
                expected.1
            ),
        }
    }
}

impl Error for LoadError {}
