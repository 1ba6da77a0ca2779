//! Contract tests: every implementer of a contract runs the suite of it with one line.

pub mod backend;
pub mod drafter;
pub mod kv_pool;
pub mod target;
pub mod template;
pub mod tokenizer;

pub use crate::{
    backend_suite as backend, drafter_suite as drafter, kv_pool_suite as kv_pool,
    target_suite as target, template_suite as template, tokenizer_suite as tokenizer,
    vision_ops_suite as vision_ops,
};
