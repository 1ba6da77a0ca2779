//! A shelf in memory that forgets some of what it is given.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use muse_core::contract::{KvOffloadStore, PrefixHash};

/// Keeps KV blocks in memory, all but a share of them.
#[derive(Debug, Default)]
pub struct FakeOffloadStore {
    blocks: Mutex<BTreeMap<PrefixHash, Vec<u8>>>,
    forgets: u64,
    found: AtomicU64,
}

impl FakeOffloadStore {
    /// A shelf that forgets one KV block in `forgets`; none when 0.
    pub fn new(forgets: u64) -> Self {
        Self { forgets, ..Self::default() }
    }

    /// KV blocks that were found again.
    pub fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }
}

impl KvOffloadStore for FakeOffloadStore {
    fn root(&self) -> PrefixHash {
        PrefixHash([7, 7])
    }

    fn put(&self, name: PrefixHash, bytes: &[u8]) {
        if self.forgets == 0 || !name.0[0].is_multiple_of(self.forgets) {
            self.blocks.lock().expect("no panic while it was held").insert(name, bytes.to_vec());
        }
    }

    fn flush(&self) {}

    fn get(&self, name: PrefixHash, out: &mut Vec<u8>) -> bool {
        let blocks = self.blocks.lock().expect("no panic while it was held");
        let Some(bytes) = blocks.get(&name) else { return false };
        out.clear();
        out.extend_from_slice(bytes);
        self.found.fetch_add(1, Ordering::Relaxed);
        true
    }
}
