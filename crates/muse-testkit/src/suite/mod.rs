//! Tests that every implementer of a contract inherits with one line.

pub mod backend;
pub mod kv_pool;

pub use crate::{backend_suite as backend, kv_pool_suite as kv_pool};
