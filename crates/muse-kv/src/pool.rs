//! The pool: free KV blocks of both groups, open sequences, and the prefixes kept for later ones.

use std::collections::HashMap;

use muse_core::contract::{
    BlockCopy, BlockCount, BlockTable, KV_BLOCK_SIZE, KvGroup, KvOffload, KvPool, PositionKey,
    PrefixBlock, PrefixHash, SeqId,
};
use muse_core::{Error, Result};

use crate::prefix::{NONE, Tree};
use crate::sequence::Sequence;

const BLOCK: u32 = KV_BLOCK_SIZE as u32;

/// Sizes of a pool and what it keeps.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// KV blocks of each group.
    pub blocks: BlockCount,
    /// How many positions back the next one attends to in the window group (inclusive distance).
    pub window_reach: u32,
    /// The most positions that a step writes past the length of a sequence.
    pub max_step_tokens: u32,
    /// Whether a new sequence reuses the blocks of earlier ones that begin with the same tokens.
    pub prefix_caching: bool,
    /// Hash of the empty prefix, [`muse_core::contract::KvOffloadStore::root`], for a pool whose
    /// evicted blocks are offloaded. Needs prefix caching.
    pub offload_root: Option<PrefixHash>,
}

impl Default for PoolOptions {
    /// No blocks, with prefix caching, without offload.
    fn default() -> Self {
        Self {
            blocks: BlockCount::default(),
            window_reach: 0,
            max_step_tokens: 0,
            prefix_caching: true,
            offload_root: None,
        }
    }
}

/// KV blocks of both groups and the sequences that hold them.
///
/// Complete KV blocks are shared as soon as they are committed: a sequence that commits the same
/// prefix as another frees its own copy. Closed sequences leave their blocks in the prefix cache
/// until they are evicted, least recently used first. A prefix can be reused at a length whose
/// window is still cached, and a sequence be truncated to such a length or to nothing.
pub struct Pool {
    options: PoolOptions,
    pub(crate) free_full: Vec<u32>,
    pub(crate) free_window: Vec<u32>,
    pub(crate) tree: Tree,
    seqs: HashMap<SeqId, Sequence>,
    /// Complete KV blocks that were evicted since the last call of [`KvOffload::evicted`]; none
    /// without offload.
    pub(crate) evicted: Option<Vec<PrefixBlock>>,
}

impl Pool {
    /// A pool with all KV blocks free.
    ///
    /// # Panics
    /// If blocks are to be offloaded without prefix caching: nothing would ever load them.
    pub fn new(options: PoolOptions) -> Self {
        let PoolOptions { blocks, prefix_caching, offload_root, .. } = options;
        assert!(prefix_caching || offload_root.is_none(), "KV offload needs prefix caching");
        // Low numbers are given out first: a lightly used cache touches little memory.
        let free = |blocks: usize| (0..blocks as u32).rev().collect();
        Self {
            free_full: free(blocks.full),
            free_window: free(blocks.window),
            tree: Tree::new(blocks.full, offload_root.unwrap_or_default()),
            options,
            seqs: HashMap::new(),
            evicted: offload_root.map(|_| Vec::new()),
        }
    }

    /// What it was built with.
    pub fn options(&self) -> PoolOptions {
        self.options
    }

    fn seq(&self, seq: SeqId) -> &Sequence {
        self.seqs.get(&seq).unwrap_or_else(|| panic!("sequence {} is not open", seq.0))
    }

    fn seq_mut(&mut self, seq: SeqId) -> &mut Sequence {
        self.seqs.get_mut(&seq).unwrap_or_else(|| panic!("sequence {} is not open", seq.0))
    }

    /// First KV block of the window group that a sequence of `len` positions attends to.
    fn first_window_block(&self, len: u32) -> usize {
        (len.saturating_sub(self.options.window_reach) / BLOCK) as usize
    }

    /// The most KV blocks of the window group that a sequence has at one time. A range of positions
    /// that begins inside a block touches one block more than it fills.
    fn window_span(&self) -> usize {
        blocks_for(self.options.window_reach.saturating_add(self.options.max_step_tokens)) + 1
    }

    /// Nodes that hold the leading positions of `keys`, and how many positions they hold.
    pub(crate) fn cached_path(&self, keys: &[PositionKey]) -> (Vec<u32>, usize) {
        let (mut path, mut parent) = (Vec::new(), NONE);
        loop {
            let done = path.len() * KV_BLOCK_SIZE;
            let (id, shared) = self.tree.longest_match(parent, &keys[done..]);
            if shared > 0 {
                path.push(id);
            }
            if shared < KV_BLOCK_SIZE {
                return (path, done + shared);
            }
            parent = id;
        }
    }

    /// The longest length up to `len` that can be reused: the blocks of its window are cached.
    fn reusable(&self, path: &[u32], mut len: usize) -> usize {
        loop {
            let window = self.first_window_block(len as u32)..len.div_ceil(KV_BLOCK_SIZE);
            let gap = window.rev().find(|&i| self.tree.window(path[i]) == NONE);
            match gap {
                Some(block) => len = block * KV_BLOCK_SIZE,
                None => return len,
            }
        }
    }

    /// Takes a KV block of the full group, evicting one if none is free. The caller has checked
    /// that there is one.
    pub(crate) fn allocate_full(&mut self) -> u32 {
        if let Some(block) = self.free_full.pop() {
            return block;
        }
        let leaf = self.tree.lru_leaf().expect("counted as evictable");
        self.evict(leaf);
        self.free_full.pop().expect("just evicted")
    }

    pub(crate) fn allocate_window(&mut self) -> u32 {
        if let Some(block) = self.free_window.pop() {
            return block;
        }
        let node = self.tree.lru_window_block().expect("counted as evictable");
        self.tree.detach_window_block(node)
    }

    fn evict(&mut self, leaf: u32) {
        if let (Some(evicted), Some(block)) = (&mut self.evicted, self.tree.prefix_block(leaf)) {
            evicted.push(block);
        }
        let window = self.tree.unlink(leaf);
        self.free_full.push(leaf);
        if window != NONE {
            self.free_window.push(window);
        }
    }

    /// Makes the partly shared KV block the sequence's own: by a copy if `can_copy`, else by taking it
    /// out of the tree, which needs that no other sequence uses it.
    fn copy_on_write(&mut self, seq: &mut Sequence, copies: &mut Vec<BlockCopy>, can_copy: bool) {
        let i = seq.shared;
        let (from, from_window) = (seq.full[i], *seq.window_at(i));
        seq.shares_partial = false;
        self.tree.release_window_ref(from);
        self.tree.release_ref(from);
        if !can_copy {
            while let Some(leaf) = self.tree.leaf_below(from) {
                self.evict(leaf);
            }
            self.tree.unlink(from);
            return;
        }
        // Referenced so that it is not evicted for the destinations.
        self.tree.add_ref(from);
        self.tree.add_window_ref(from);
        let (to, to_window) = (self.allocate_full(), self.allocate_window());
        self.tree.release_window_ref(from);
        self.tree.release_ref(from);
        let positions = (seq.len % BLOCK) as usize;
        self.tree.copy_keys(from, to, positions);
        for (group, from, to) in
            [(KvGroup::Full, from, to), (KvGroup::Window, from_window, to_window)]
        {
            copies.push(BlockCopy { group, from, to, positions });
        }
        seq.full[i] = to;
        *seq.window_at(i) = to_window;
    }

    /// Puts the first own KV block, which has just become complete, into the tree.
    fn link_complete_block(&mut self, seq: &mut Sequence) {
        let i = seq.shared;
        let parent = if i == 0 { NONE } else { seq.full[i - 1] };
        let (block, window) = (seq.full[i], *seq.window_at(i));
        let (known, shared) = self.tree.longest_match(parent, self.tree.keys(block));
        seq.shared += 1;
        if shared < KV_BLOCK_SIZE {
            self.evict_partial_prefix(known, shared);
            self.tree.link(parent, block, window, KV_BLOCK_SIZE);
            return;
        }
        // Equal keys after equal prefixes have equal K and V: the node's block is used instead.
        self.tree.add_ref(known);
        self.free_full.push(block);
        seq.full[i] = known;
        if self.tree.window(known) == NONE {
            self.tree.attach_window_block(known, window);
        } else {
            self.tree.add_window_ref(known);
            self.free_window.push(window);
            *seq.window_at(i) = self.tree.window(known);
        }
    }

    /// Evicts an unused node that only holds the first `len` positions of a KV block about to be
    /// linked.
    pub(crate) fn evict_partial_prefix(&mut self, known: u32, len: usize) {
        if known != NONE && self.tree.ref_count(known) == 0 && self.tree.len(known) == len {
            self.evict(known);
        }
    }

    /// Puts the incomplete last KV block into the tree, for a sequence that continues there.
    fn link_partial_block(&mut self, seq: &mut Sequence) {
        let (i, len) = (seq.shared, (seq.len % BLOCK) as usize);
        if len == 0 || seq.shares_partial {
            return;
        }
        let parent = if i == 0 { NONE } else { seq.full[i - 1] };
        let (block, window) = (seq.full[i], *seq.window_at(i));
        let (known, shared) = self.tree.longest_match(parent, &self.tree.keys(block)[..len]);
        if shared < len {
            self.evict_partial_prefix(known, shared);
            self.tree.link(parent, block, window, len);
            seq.shares_partial = true;
        }
    }

    /// Frees or releases the KV blocks from the `from`-th on.
    fn drop_blocks(&mut self, seq: &mut Sequence, from: usize) {
        while seq.full.len() > from {
            let i = seq.full.len() - 1;
            let block = seq.full.pop().expect("one more than `from`");
            let window = if i >= seq.window_offset { seq.window.pop() } else { None };
            if i < seq.shared_blocks() {
                if window.is_some() {
                    self.tree.release_window_ref(block);
                }
                self.tree.release_ref(block);
                if seq.shares_partial {
                    seq.shares_partial = false;
                } else {
                    seq.shared -= 1;
                }
            } else {
                self.free_full.push(block);
                self.free_window.extend(window);
            }
        }
    }
}

fn blocks_for(positions: u32) -> usize {
    positions.div_ceil(BLOCK) as usize
}

impl KvPool for Pool {
    fn open(&mut self, id: SeqId, prompt: &[PositionKey]) -> Result<u32> {
        // The last token of a prompt always runs: its logits are needed.
        let reusable = if self.options.prefix_caching { prompt.len().saturating_sub(1) } else { 0 };
        let (path, known) = self.cached_path(&prompt[..reusable]);
        let cached = self.reusable(&path, known);
        let mut seq = Sequence {
            len: cached as u32,
            shared: cached / KV_BLOCK_SIZE,
            shares_partial: !cached.is_multiple_of(KV_BLOCK_SIZE),
            window_offset: self.first_window_block(cached as u32),
            // The most it can hold: a step does not allocate.
            full: Vec::with_capacity(self.options.blocks.full),
            window: Vec::with_capacity(self.window_span().min(self.options.blocks.window)),
        };
        for (i, &block) in path.iter().enumerate().take(seq.shared_blocks()) {
            self.tree.add_ref(block);
            seq.full.push(block);
            if i >= seq.window_offset {
                self.tree.add_window_ref(block);
                seq.window.push(self.tree.window(block));
            }
        }
        let before = self.seqs.insert(id, seq);
        assert!(before.is_none(), "sequence {} is already open", id.0);
        Ok(cached as u32)
    }

    fn reserve(&mut self, id: SeqId, end: u32, copies: &mut Vec<BlockCopy>) -> Result<()> {
        let mut seq = std::mem::take(self.seq_mut(id));
        // Blocks are reserved in both groups at once; only the oldest window blocks are freed.
        let more = blocks_for(end).saturating_sub(seq.full.len());
        let copy = usize::from(seq.shares_partial && end > seq.len);
        let free = self.free();
        let can_copy = more + copy <= free.full && more + copy <= free.window;
        // Without blocks for a copy, the only user of a partly shared block may take it itself.
        let takes = copy == 1 && self.tree.ref_count(seq.full[seq.shared]) == 1;
        if !(can_copy || takes && more <= free.full && more <= free.window) {
            *self.seq_mut(id) = seq;
            return Err(Error::Exhausted(format!(
                "positions up to {end} need {} blocks more of each group, {} full and {} window \
                 blocks are free: retry when other requests have ended",
                more + copy,
                free.full,
                free.window
            )));
        }
        if copy == 1 {
            self.copy_on_write(&mut seq, copies, can_copy);
        }
        for _ in 0..more {
            let (full, window) = (self.allocate_full(), self.allocate_window());
            seq.full.push(full);
            seq.window.push(window);
        }
        *self.seq_mut(id) = seq;
        Ok(())
    }

    fn commit(&mut self, id: SeqId, keys: &[PositionKey]) {
        let mut seq = std::mem::take(self.seq_mut(id));
        let end = seq.len + keys.len() as u32;
        assert!(blocks_for(end) <= seq.full.len(), "committed positions were reserved");
        assert!(keys.is_empty() || !seq.shares_partial, "committed positions were reserved");
        for &key in keys {
            let block = seq.full[(seq.len / BLOCK) as usize];
            self.tree.set_key(block, (seq.len % BLOCK) as usize, key);
            seq.len += 1;
            if seq.len.is_multiple_of(BLOCK) {
                self.link_complete_block(&mut seq);
            }
        }
        let window_offset = self.first_window_block(seq.len);
        for i in seq.window_offset..window_offset {
            self.tree.release_window_ref(seq.full[i]);
        }
        seq.window.drain(..window_offset - seq.window_offset);
        seq.window_offset = window_offset;
        *self.seq_mut(id) = seq;
    }

    fn truncate(&mut self, id: SeqId, len: u32) {
        let mut seq = std::mem::take(self.seq_mut(id));
        assert!(len <= seq.len, "truncated to {len}, the length is {}", seq.len);
        self.drop_blocks(&mut seq, blocks_for(len));
        // The last block may be a node of which only the first positions stay.
        if !len.is_multiple_of(BLOCK) && seq.shared == blocks_for(len) {
            seq.shared -= 1;
            seq.shares_partial = true;
        }
        seq.len = len;
        // Blocks that had left the window and are in it again are still in the tree.
        let oldest = self.first_window_block(len).min(seq.window_offset);
        for i in (oldest..seq.window_offset.min(seq.full.len())).rev() {
            self.tree.add_window_ref(seq.full[i]);
            seq.window.insert(0, self.tree.window(seq.full[i]));
        }
        seq.window_offset = oldest;
        *self.seq_mut(id) = seq;
    }

    fn len(&self, id: SeqId) -> u32 {
        self.seq(id).len
    }

    fn block_table(&self, id: SeqId) -> BlockTable<'_> {
        let seq = self.seq(id);
        let window_base = (seq.window_offset * KV_BLOCK_SIZE) as u32;
        BlockTable { full: &seq.full, window: &seq.window, window_base }
    }

    fn close(&mut self, id: SeqId) {
        let mut seq = self.seqs.remove(&id).expect("an open sequence");
        self.link_partial_block(&mut seq);
        self.drop_blocks(&mut seq, 0);
    }

    fn free(&self) -> BlockCount {
        BlockCount {
            full: self.free_full.len() + self.tree.evictable,
            window: self.free_window.len() + self.tree.evictable_windows,
        }
    }

    fn total(&self) -> BlockCount {
        self.options.blocks
    }

    fn offload(&mut self) -> Option<&mut dyn KvOffload> {
        self.evicted.is_some().then_some(self as &mut dyn KvOffload)
    }

    fn worst_case(&self, positions: u32) -> BlockCount {
        let full = blocks_for(positions);
        BlockCount { full, window: full.min(self.window_span()) }
    }
}
