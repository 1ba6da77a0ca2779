//! Shared pieces of the tests that join several crates.
