//! The `muse` command.

fn main() {}
