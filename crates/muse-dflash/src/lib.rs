//! The DFlash drafter: drafts a block of tokens in one pass, from the target model's hidden states.
//!
//! [`Dflash`] implements [`muse_core::contract::Drafter`] over any backend. It has no vocabulary of
//! its own: it borrows the target model's embedding and LM head.
//!
//! What 64 tokens of context cost for the drafter of Muse-Glimmer-30B:
//!
//! ```
//! use muse_core::contract::{DrafterSpec, Footprint, KvType};
//! use muse_dflash::DflashFootprint;
//!
//! let spec = DrafterSpec {
//!     hidden: 6656, ffn: 19968, heads: 32, kv_heads: 8, head_dim: 128, layers: 5,
//!     norm_eps: 1e-5, rope_theta: 5e5, reach: 2048, draft_block: 16, mask_token: 201818,
//!     target_layers: vec![1, 13, 25, 37, 49],
//! };
//! let footprint = DflashFootprint { spec: &spec, vocab: 202_048 };
//! assert_eq!(footprint.block_bytes(KvType::Bf16).window, 64 * 20_480);
//! ```
#![forbid(unsafe_code)]

mod config;
mod drafter;
mod forward;
mod select;
mod weights;

pub use config::DflashFootprint;
pub use drafter::Dflash;
