//! An offload store in memory that drops some of its blocks.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use muse_core::contract::{KvOffloadStore, PrefixHash};

/// Stores KV blocks in memory, except for a share of them.
#[derive(Debug, Default)]
pub struct FakeOffloadStore {
    blocks: Mutex<BTreeMap<PrefixHash, Vec<u8>>>,
    drops: u64,
    found: AtomicU64,
}

impl FakeOffloadStore {
    /// A store that drops one KV block in `drops`; none when 0.
    pub fn new(drops: u64) -> Self {
        Self { drops, ..Self::default() }
    }

    /// KV blocks that were found.
    pub fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }
}

impl KvOffloadStore for FakeOffloadStore {
    fn root(&self) -> PrefixHash {
        PrefixHash([7, 7])
    }

    fn put(&self, hash: PrefixHash, bytes: &[u8]) {
        if self.drops == 0 || !hash.0[0].is_multiple_of(self.drops) {
            self.blocks.lock().expect("no panic while it was held").insert(hash, bytes.to_vec());
        }
    }

    fn flush(&self) {}

    fn get(&self, hash: PrefixHash, out: &mut Vec<u8>) -> bool {
        let blocks = self.blocks.lock().expect("no panic while it was held");
        let Some(bytes) = blocks.get(&hash) else { return false };
        out.clear();
        out.extend_from_slice(bytes);
        self.found.fetch_add(1, Ordering::Relaxed);
        true
    }
}
