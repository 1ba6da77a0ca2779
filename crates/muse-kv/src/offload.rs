//! KV offload of the pool: which blocks are to be stored, and which can be restored.

use std::ops::Range;

use muse_core::contract::{KV_BLOCK_SIZE, KvOffload, PositionKey, PrefixBlock, PrefixHash};

use crate::Pool;
use crate::prefix::NONE;

impl Pool {
    /// The node that ends the complete cached KV blocks of `prompt`, and their positions.
    fn deepest(&self, prompt: &[PositionKey]) -> (u32, usize) {
        let (path, cached) = self.cached_path(prompt);
        let blocks = cached / KV_BLOCK_SIZE;
        (blocks.checked_sub(1).map_or(NONE, |last| path[last]), blocks * KV_BLOCK_SIZE)
    }

    /// Whether a KV block of the full group, and of the window group if `window`, can be allocated.
    fn can_allocate(&self, window: bool) -> bool {
        let full = !self.free_full.is_empty() || self.tree.lru_leaf().is_some();
        let windows = !self.free_window.is_empty() || self.tree.lru_window_block().is_some();
        full && (windows || !window)
    }
}

impl KvOffload for Pool {
    fn evicted(&mut self, out: &mut Vec<PrefixBlock>) {
        out.append(self.evicted.as_mut().expect("a pool with offload"));
    }

    fn cached(&self, out: &mut Vec<PrefixBlock>) {
        out.extend(
            self.tree.evictable_blocks().into_iter().filter_map(|id| self.tree.prefix_block(id)),
        );
    }

    fn missing(&self, prompt: &[PositionKey]) -> Option<(PrefixHash, Range<usize>)> {
        let (parent, cached) = self.deepest(prompt);
        let block = cached..cached + KV_BLOCK_SIZE;
        let keys = prompt.get(block.clone()).filter(|_| block.end < prompt.len())?;
        Some((self.tree.hash(parent).extend(keys), block))
    }

    fn allocate_missing(&mut self, prompt: &[PositionKey], window: bool) -> Option<PrefixBlock> {
        let (parent, cached) = self.deepest(prompt);
        let keys = &prompt[cached..cached + KV_BLOCK_SIZE];
        let (known, shared) = self.tree.longest_match(parent, keys);
        self.evict_partial_prefix(known, shared);
        // Referenced so that it is not evicted for the block that continues it.
        if parent != NONE {
            self.tree.add_ref(parent);
        }
        let blocks = self.can_allocate(window).then(|| {
            let full = self.allocate_full();
            (full, if window { self.allocate_window() } else { NONE })
        });
        if parent != NONE {
            self.tree.release_ref(parent);
        }
        let (full, window) = blocks?;
        for (position, &key) in keys.iter().enumerate() {
            self.tree.set_key(full, position, key);
        }
        self.tree.link(parent, full, window, KV_BLOCK_SIZE);
        if window != NONE {
            self.tree.release_window_ref(full);
        }
        self.tree.release_ref(full);
        self.tree.prefix_block(full)
    }
}
