//! Tests that every implementer of a contract inherits with one line.

pub mod backend;

pub use crate::backend_suite as backend;
