//! Raw C ABI of Tenstorrent's Metal host API: the bindings of our own C header, the library behind
//! it and how it is opened. `extern "C"` declarations and `repr(C)` types only; no logic.
//!
//! The shim is a shared library of its own, compiled with the feature `tt` and opened at run time,
//! so that everything else builds and tests without Tenstorrent's parts.

#[path = "generated/ffi.rs"]
pub mod ffi;
mod load;

pub use load::{Library, LoadError};

/// Where the shim of this build lies; none without the feature `tt`.
pub const SHIM: Option<&str> = option_env!("MUSE_TT_SHIM");

#[cfg(all(test, feature = "tt"))]
mod tests {
    /// The bindings in the tree are what the header says.
    #[test]
    fn the_bindings_are_those_of_the_header() {
        let fresh = include_str!(concat!(env!("OUT_DIR"), "/ffi.rs"));
        let kept = include_str!("generated/ffi.rs");
        assert_eq!(kept, fresh, "copy {}/ffi.rs over src/generated/ffi.rs", env!("OUT_DIR"));
    }
}
