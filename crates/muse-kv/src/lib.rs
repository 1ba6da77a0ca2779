//! Which page of the KV cache belongs to whom. Numbers only: the bytes are with their holders.
//!
//! ```
//! use muse_core::contract::{KvPool, PageKey, SeqId, Token};
//! use muse_kv::{Pool, PoolOptions};
//!
//! let mut pool = Pool::new(PoolOptions { full_pages: 8, window_pages: 8, reach: 63, block: 16 });
//! let (seq, mut copies) = (SeqId(1), Vec::new());
//! pool.open(seq, &[PageKey::Token(Token(5))])?;
//! pool.reserve(seq, 17, &mut copies)?; // Positions 0 to 16 can be written now.
//! pool.commit(seq, &[PageKey::Token(Token(5))]); // One row stays.
//! assert_eq!((pool.len(seq), pool.free().full), (1, 7));
//! # Ok::<(), muse_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod pool;
mod prefix;
mod seq;
mod spill;

pub use pool::{Pool, PoolOptions};
pub use prefix::BYTES_A_PAGE;
