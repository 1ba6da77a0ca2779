//! A device, a target, a drafter and a grammar that stand in for the real ones. What the fake
//! target says next is a hash of every row it reaches through the KV block table, so that a single
//! misplaced row or KV block changes every later token.

mod backend;
mod constraint;
mod drafter;
mod offload_store;
mod rows;
mod target;

use std::sync::Arc;

use muse_core::Error;

pub use backend::{FakeBackend, FakeBuf};
pub use constraint::{EvenTokens, Forced};
pub use drafter::{DrafterLog, FakeDrafter};
pub use offload_store::FakeOffloadStore;
pub use rows::{FakeCost, FakeModel, FakeOptions};
pub use target::FakeTarget;

fn device_fault(doing: &str) -> Error {
    Error::Device { doing: doing.into(), source: Arc::new(std::io::Error::other("planted fault")) }
}
