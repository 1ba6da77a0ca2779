//! Shared pieces of the tests that join several crates.

pub mod sim;
