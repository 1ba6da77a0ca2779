//! Which KV blocks others may keep, and taking them back.

use std::ops::Range;

use muse_core::contract::{KV_BLOCK_SIZE, KvOffload, PositionKey, PrefixBlock, PrefixHash};

use crate::Pool;
use crate::prefix::NONE;

impl Pool {
    /// The node that ends the complete KV blocks of `prompt` in the tree, and their rows.
    fn deepest(&self, prompt: &[PositionKey]) -> (u32, usize) {
        let (path, rows) = self.known(prompt);
        let blocks = rows / KV_BLOCK_SIZE;
        (blocks.checked_sub(1).map_or(NONE, |last| path[last]), blocks * KV_BLOCK_SIZE)
    }

    /// Whether a KV block of each group is free or can be freed.
    fn has_room(&self, window: bool) -> bool {
        let full = !self.free_full.is_empty() || self.tree.oldest_leaf().is_some();
        let windows = !self.free_window.is_empty() || self.tree.oldest_window().is_some();
        full && (windows || !window)
    }
}

impl KvOffload for Pool {
    fn evicted(&mut self, out: &mut Vec<PrefixBlock>) {
        out.append(self.evicted.as_mut().expect("a pool that tells of what it evicts"));
    }

    fn cached(&self, out: &mut Vec<PrefixBlock>) {
        out.extend(self.tree.unused().into_iter().filter_map(|id| self.tree.cold(id)));
    }

    fn missing(&self, prompt: &[PositionKey]) -> Option<(PrefixHash, Range<usize>)> {
        let (parent, rows) = self.deepest(prompt);
        let block = rows..rows + KV_BLOCK_SIZE;
        let keys = prompt.get(block.clone()).filter(|_| block.end < prompt.len())?;
        Some((self.tree.hash(parent).extend(keys), block))
    }

    fn adopt(&mut self, prompt: &[PositionKey], window: bool) -> Option<PrefixBlock> {
        let (parent, rows) = self.deepest(prompt);
        let keys = &prompt[rows..rows + KV_BLOCK_SIZE];
        let (known, shared) = self.tree.closest(parent, keys);
        self.drop_beginning(known, shared);
        // Held, or it would itself be evicted for what follows it.
        if parent != NONE {
            self.tree.hold(parent);
        }
        let blocks = self.has_room(window).then(|| {
            let full = self.take_full();
            (full, if window { self.take_window() } else { NONE })
        });
        if parent != NONE {
            self.tree.release(parent);
        }
        let (full, window) = blocks?;
        for (row, &key) in keys.iter().enumerate() {
            self.tree.set_key(full, row, key);
        }
        self.tree.link(parent, full, window, KV_BLOCK_SIZE);
        if window != NONE {
            self.tree.release_window(full);
        }
        self.tree.release(full);
        self.tree.cold(full)
    }
}
