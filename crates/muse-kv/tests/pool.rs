//! The pool under the suite of its contract.

use muse_kv::{Pool, PoolOptions};
use muse_testkit::suite::kv_pool::Shape;

fn build(shape: Shape) -> Pool {
    let Shape { blocks, window_reach, max_step_tokens } = shape;
    Pool::new(PoolOptions { blocks, window_reach, max_step_tokens, ..PoolOptions::default() })
}

muse_testkit::suite::kv_pool!(build);
