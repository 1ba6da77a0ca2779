//! Shared pieces of the tests that join several crates.
#![forbid(unsafe_code)]

pub mod sim;
