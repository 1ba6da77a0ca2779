//! Fakes of a device, a target model, a drafter, a grammar and an offload store. The next token of
//! the fake target is a hash of every position it reaches through the block table, so that a single
//! misplaced position or KV block changes every later token.

mod backend;
mod constraint;
mod drafter;
mod encoder;
mod offload_store;
mod rows;
mod target;

use std::sync::Arc;

use muse_core::Error;

pub use backend::{FakeBackend, FakeBuf};
pub use constraint::{EvenTokens, Forced};
pub use drafter::{DrafterLog, FakeDrafter};
pub use encoder::{EncoderLog, FakeEncoder, picture_row};
pub use offload_store::FakeOffloadStore;
pub use rows::{FakeCost, FakeModel, FakeOptions};
pub use target::FakeTarget;

fn device_fault(doing: &str) -> Error {
    Error::Device { doing: doing.into(), source: Arc::new(std::io::Error::other("planted fault")) }
}
