//! Pictures and video to embedding rows: the place of the [`VisionEncoder`] of Muse-Glimmer.
//!
//! Resizing, patches, the tower and the projector will live here. Until then a server is built
//! without an encoder and answers a request with pictures with `Unsupported`.
#![forbid(unsafe_code)]

pub use muse_core::contract::{EncodeId, Patches, VisionEncoder};
