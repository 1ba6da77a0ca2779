//! The pool under the contract's suite.

use muse_kv::{Pool, PoolOptions};
use muse_testkit::suite::kv_pool::Shape;

fn build(shape: Shape) -> Pool {
    let Shape { full_blocks, window_blocks, reach, block } = shape;
    Pool::new(PoolOptions { full_blocks, window_blocks, reach, block })
}

muse_testkit::suite::kv_pool!(build);
