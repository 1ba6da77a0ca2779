//! The KV block allocator with its prefix cache. It deals in block numbers; the models keep the
//! bytes.
//!
//! ```
//! use muse_core::contract::{BlockCount, KvPool, PositionKey, SeqId, Token};
//! use muse_kv::{Pool, PoolOptions};
//!
//! let mut pool = Pool::new(PoolOptions {
//!     blocks: BlockCount { full: 8, window: 8 },
//!     window_reach: 63,
//!     max_step_tokens: 16,
//!     ..PoolOptions::default()
//! });
//! let (seq, mut copies) = (SeqId(1), Vec::new());
//! pool.open(seq, &[PositionKey::Token(Token(5))])?;
//! pool.reserve(seq, 17, &mut copies)?; // Positions 0 to 16 can be written now.
//! pool.commit(seq, &[PositionKey::Token(Token(5))]); // One position stays.
//! assert_eq!((pool.len(seq), pool.free().full), (1, 7));
//! # Ok::<(), muse_core::Error>(())
//! ```
#![forbid(unsafe_code)]

mod offload;
mod pool;
mod prefix;
mod sequence;

pub use pool::{Pool, PoolOptions};
pub use prefix::BYTES_PER_BLOCK;
