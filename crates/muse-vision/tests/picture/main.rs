//! Pictures and animations to patches, against Pillow, torchvision and CPython.

mod grid;
mod hostile;
mod patches;
mod pixels;
mod video;

use std::fs;

use muse_testkit::golden_dir;

/// A file of `tests/golden/pictures/files`.
fn file(name: &str) -> Vec<u8> {
    let path = golden_dir().join("pictures/files").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
