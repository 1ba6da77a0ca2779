//! Raw C ABI of Tenstorrent's Metal host library: the bindings of our own C header, and how the
//! shim that implements it is opened. `extern "C"` declarations and `repr(C)` types only; no logic.
#![doc = include_str!("../README.md")]

#[path = "generated/ffi.rs"]
pub mod ffi;
mod load;

pub use load::{Library, LoadError};

/// The path of the shim of this build; `None` without the feature `tt`.
pub const SHIM: Option<&str> = option_env!("MUSE_TT_SHIM");

#[cfg(all(test, feature = "tt"))]
mod tests {
    #[test]
    fn the_bindings_in_the_tree_are_generated_from_the_header() {
        let fresh = include_str!(concat!(env!("OUT_DIR"), "/ffi.rs"));
        let committed = include_str!("generated/ffi.rs");
        assert!(committed == fresh, "copy {}/ffi.rs over src/generated/ffi.rs", env!("OUT_DIR"));
    }
}
