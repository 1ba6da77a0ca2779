//! Pictures to the embedding rows that Muse-Glimmer reads in place of tokens.
//!
//! [`Tower`] runs the vision tower and the projector on any [`VisionOps`] device, in slices of
//! rows; [`Encoder`] is a [`VisionEncoder`] over it that encodes a picture once for all requests,
//! and [`HostEncoder`] gives its rows to a device that cannot run the tower.
#![forbid(unsafe_code)]

mod encoder;
mod tower;

pub use encoder::{Encoder, HostEncoder};
pub use muse_core::contract::{EncodeId, Patches, VisionEncoder, VisionOps};
pub use tower::{Encoding, Intermediate, TableBorder, TableOrder, Tower, TowerOptions};
