//! The `muse` command.
#![forbid(unsafe_code)]

fn main() {}
