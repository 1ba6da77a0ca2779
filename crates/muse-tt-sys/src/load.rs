//! Opens the shim.

use std::borrow::Cow;
use std::error::Error;
use std::ffi::CStr;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::ffi::{MTT_ABI, mtt_api};

/// The name of the one function that the shim exports.
const ENTRY: &[u8] = b"muse_tt_api\0";

/// An open shim. The host library behind it registers what runs at the end of the process, so it
/// is never closed.
#[derive(Clone, Copy)]
pub struct Library {
    api: &'static mtt_api,
}

/// Why the shim cannot be used.
#[derive(Debug)]
pub enum LoadError {
    /// It, or a library that it needs, is missing or broken.
    Absent(PathBuf, libloading::Error),
    /// It has no table.
    Empty(PathBuf),
    /// It was compiled from another header: the two numbers, found and expected, are its version
    /// and the bytes of its table.
    Foreign(PathBuf, (u32, usize), (u32, usize)),
}

impl Library {
    /// Opens the shim at `path`.
    ///
    /// # Errors
    /// [`LoadError`] when there is no library or not this one.
    ///
    /// # Safety
    /// `path` must be a shim compiled from `shim/muse_tt.cpp`: a library runs its own code when it
    /// is opened, and its table is trusted once its version and size agree.
    pub unsafe fn open(path: &Path) -> Result<Self, LoadError> {
        let absent = |error| LoadError::Absent(path.to_owned(), error);
        // SAFETY: the caller vouches for what the library does when it is opened.
        let library = unsafe { libloading::Library::new(path) }.map_err(absent)?;
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        // SAFETY: a shim exports the entry with this type, as its header declares it.
        let entry = unsafe { library.get::<unsafe extern "C" fn() -> *const mtt_api>(ENTRY) };
        let entry = entry.map_err(absent)?;
        // SAFETY: it takes nothing and returns a table that lives as long as the library.
        let table = unsafe { entry() };
        if table.is_null() {
            return Err(LoadError::Empty(path.to_owned()));
        }
        // SAFETY: there is a table, and every version of it begins with its version and its size.
        let head = unsafe { table.cast::<[u32; 2]>().read() };
        let (found, wanted) = ((head[0], head[1] as usize), (MTT_ABI, size_of::<mtt_api>()));
        if found != wanted {
            return Err(LoadError::Foreign(path.to_owned(), found, wanted));
        }
        // SAFETY: version and size agree, and the library is never closed.
        let api = unsafe { &*table };
        // SAFETY: a table of this version and size is what its header says.
        Ok(unsafe { Self::of(api) })
    }

    /// A table that is there already, as in tests without a library.
    ///
    /// # Safety
    /// All functions of the table are there and do what `shim/muse_tt.h` says, called by any
    /// thread; its library is null or a string that ends in a zero and lives as long as the table.
    pub unsafe fn of(api: &'static mtt_api) -> Self {
        Self { api }
    }

    /// The host library that the shim was compiled for.
    pub fn host(&self) -> Cow<'static, str> {
        if self.api.library.is_null() {
            return Cow::Borrowed("none");
        }
        // SAFETY: it is not null, and such a table's is a string that lives as long as it.
        unsafe { CStr::from_ptr(self.api.library) }.to_string_lossy()
    }

    /// The functions.
    pub fn api(&self) -> &'static mtt_api {
        self.api
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(path, error) => write!(
                f,
                "{}: {error}; run `cargo xtask tt-setup` and build with the feature `tt` again",
                path.display()
            ),
            Self::Empty(path) => write!(
                f,
                "{} gives no table of functions; it is broken, build with the feature `tt` again",
                path.display()
            ),
            Self::Foreign(path, found, wanted) => write!(
                f,
                "{} has version {} and a table of {} bytes, expected {} and {}; it is of another \
                 build, build with the feature `tt` again",
                path.display(),
                found.0,
                found.1,
                wanted.0,
                wanted.1
            ),
        }
    }
}

impl Error for LoadError {}
