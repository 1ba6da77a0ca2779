//! Opens the shim of this build and prints the host library that it was compiled for.
//!
//! `cargo run -p muse-tt-sys --example shim`; with `--features tt` and `MUSE_TT_DIR` set, there is a
//! shim to open.

use muse_tt_sys::{Library, SHIM};

fn main() {
    match SHIM {
        // SAFETY: the build script of this crate compiled this library.
        Some(path) => match unsafe { Library::open(path.as_ref()) } {
            Ok(library) => println!("{path}: compiled for {}", library.host()),
            Err(error) => println!("{error}"),
        },
        None => println!("this build has no shim: build with the feature `tt`"),
    }
}
