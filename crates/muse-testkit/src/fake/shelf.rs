//! A shelf in memory that forgets some of what it is given.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use muse_core::contract::{PrefixName, Shelf};

/// Keeps pages in memory, all but a share of them.
#[derive(Debug, Default)]
pub struct FakeShelf {
    pages: Mutex<BTreeMap<PrefixName, Vec<u8>>>,
    forgets: u64,
    found: AtomicU64,
}

impl FakeShelf {
    /// A shelf that forgets one page in `forgets`; none when 0.
    pub fn new(forgets: u64) -> Self {
        Self { forgets, ..Self::default() }
    }

    /// Pages that were found again.
    pub fn found(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }
}

impl Shelf for FakeShelf {
    fn root(&self) -> PrefixName {
        PrefixName([7, 7])
    }

    fn put(&self, name: PrefixName, bytes: &[u8]) {
        if self.forgets == 0 || !name.0[0].is_multiple_of(self.forgets) {
            self.pages.lock().expect("no panic while it was held").insert(name, bytes.to_vec());
        }
    }

    fn settle(&self) {}

    fn get(&self, name: PrefixName, out: &mut Vec<u8>) -> bool {
        let pages = self.pages.lock().expect("no panic while it was held");
        let Some(bytes) = pages.get(&name) else { return false };
        out.clear();
        out.extend_from_slice(bytes);
        self.found.fetch_add(1, Ordering::Relaxed);
        true
    }
}
