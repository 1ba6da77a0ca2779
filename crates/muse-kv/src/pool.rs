//! The pool: free KV blocks of the two groups, open sequences, and what is kept for later ones.

use std::collections::HashMap;

use muse_core::contract::{
    BlockCopy, BlockCount, BlockTable, KV_BLOCK_SIZE, KvGroup, KvOffload, KvPool, PositionKey,
    PrefixBlock, PrefixHash, SeqId,
};
use muse_core::{Error, Result};

use crate::prefix::{NONE, Tree};
use crate::seq::Seq;

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

/// KV blocks of two groups and who holds them.
///
/// Rows of complete KV blocks are shared as soon as they are committed: a sequence that comes to the
/// same rows gives its own KV block back. Closed sequences leave theirs behind until the space is
/// needed; what went unused longest goes first. A prefix can be taken up again at a length whose
/// window is still there, and a sequence be truncated to such a length or to nothing.
pub struct Pool {
    options: PoolOptions,
    pub(crate) free_full: Vec<u32>,
    pub(crate) free_window: Vec<u32>,
    pub(crate) tree: Tree,
    seqs: HashMap<SeqId, Seq>,
    /// Complete KV blocks that were evicted, where somebody keeps them.
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

    fn seq(&self, seq: SeqId) -> &Seq {
        self.seqs.get(&seq).unwrap_or_else(|| panic!("sequence {} is not open", seq.0))
    }

    fn seq_mut(&mut self, seq: SeqId) -> &mut Seq {
        self.seqs.get_mut(&seq).unwrap_or_else(|| panic!("sequence {} is not open", seq.0))
    }

    /// First KV block of the window group that a sequence of `len` rows still sees.
    fn oldest(&self, len: u32) -> usize {
        (len.saturating_sub(self.options.window_reach) / BLOCK) as usize
    }

    /// The most KV blocks of the window group that a sequence has at one time: a run of n positions
    /// touches one KV block more than it fills when it begins late in one.
    fn window_span(&self) -> usize {
        blocks_for(self.options.window_reach.saturating_add(self.options.max_step_tokens)) + 1
    }

    /// KV blocks of the tree that hold the leading rows of `keys`, and the rows they hold.
    pub(crate) fn known(&self, keys: &[PositionKey]) -> (Vec<u32>, usize) {
        let (mut path, mut parent) = (Vec::new(), NONE);
        loop {
            let done = path.len() * KV_BLOCK_SIZE;
            let (id, shared) = self.tree.closest(parent, &keys[done..]);
            if shared > 0 {
                path.push(id);
            }
            if shared < KV_BLOCK_SIZE {
                return (path, done + shared);
            }
            parent = id;
        }
    }

    /// The longest length up to `rows` that can be taken up: the KV blocks of its window are there.
    fn resumable(&self, path: &[u32], mut rows: usize) -> usize {
        loop {
            let seen = self.oldest(rows as u32)..rows.div_ceil(KV_BLOCK_SIZE);
            let gap = seen.rev().find(|&i| self.tree.window(path[i]) == NONE);
            match gap {
                Some(block) => rows = block * KV_BLOCK_SIZE,
                None => return rows,
            }
        }
    }

    /// A free KV block of the full group, evicting for it. The caller has counted: there is one.
    pub(crate) fn take_full(&mut self) -> u32 {
        if let Some(block) = self.free_full.pop() {
            return block;
        }
        let leaf = self.tree.oldest_leaf().expect("counted as evictable");
        self.evict(leaf);
        self.free_full.pop().expect("just evicted")
    }

    pub(crate) fn take_window(&mut self) -> u32 {
        if let Some(block) = self.free_window.pop() {
            return block;
        }
        let node = self.tree.oldest_window().expect("counted as evictable");
        self.tree.take_window(node)
    }

    fn evict(&mut self, leaf: u32) {
        if let (Some(evicted), Some(cold)) = (&mut self.evicted, self.tree.cold(leaf)) {
            evicted.push(cold);
        }
        let window = self.tree.unlink(leaf);
        self.free_full.push(leaf);
        if window != NONE {
            self.free_window.push(window);
        }
    }

    /// Makes the borrowed KV block the sequence's own: by a copy, or when there is no room for one
    /// and nobody else uses it, by taking it out of the tree.
    fn own_borrowed(&mut self, seq: &mut Seq, copies: &mut Vec<BlockCopy>, room: bool) {
        let i = seq.shared;
        let (from, from_window) = (seq.full[i], *seq.window_at(i));
        seq.borrows = false;
        self.tree.release_window(from);
        self.tree.release(from);
        if !room {
            while let Some(leaf) = self.tree.leaf_below(from) {
                self.evict(leaf);
            }
            self.tree.unlink(from);
            return;
        }
        // Held while the destinations are found, or it would itself be evicted for them.
        self.tree.hold(from);
        self.tree.hold_window(from);
        let (to, to_window) = (self.take_full(), self.take_window());
        self.tree.release_window(from);
        self.tree.release(from);
        let rows = (seq.len % BLOCK) as usize;
        self.tree.copy_keys(from, to, rows);
        for (group, from, to) in
            [(KvGroup::Full, from, to), (KvGroup::Window, from_window, to_window)]
        {
            copies.push(BlockCopy { group, from, to, positions: rows });
        }
        seq.full[i] = to;
        *seq.window_at(i) = to_window;
    }

    /// Shares the KV block behind the shared ones, which has just become complete.
    fn share(&mut self, seq: &mut Seq) {
        let i = seq.shared;
        let parent = if i == 0 { NONE } else { seq.full[i - 1] };
        let (block, window) = (seq.full[i], *seq.window_at(i));
        let (known, rows) = self.tree.closest(parent, self.tree.keys(block));
        seq.shared += 1;
        if rows < KV_BLOCK_SIZE {
            self.drop_beginning(known, rows);
            self.tree.link(parent, block, window, KV_BLOCK_SIZE);
            return;
        }
        // Equal keys after equal prefixes have equal rows: one KV block is enough.
        self.tree.hold(known);
        self.free_full.push(block);
        seq.full[i] = known;
        if self.tree.window(known) == NONE {
            self.tree.give_window(known, window);
        } else {
            self.tree.hold_window(known);
            self.free_window.push(window);
            *seq.window_at(i) = self.tree.window(known);
        }
    }

    /// Evicts an unused node that only holds the beginning of a KV block about to be linked.
    pub(crate) fn drop_beginning(&mut self, known: u32, rows: usize) {
        if known != NONE && self.tree.users(known) == 0 && self.tree.rows(known) == rows {
            self.evict(known);
        }
    }

    /// Leaves the rows behind the shared KV blocks in the tree, for a sequence that goes on there.
    fn leave_tail(&mut self, seq: &mut Seq) {
        let (i, rows) = (seq.shared, (seq.len % BLOCK) as usize);
        if rows == 0 || seq.borrows {
            return;
        }
        let parent = if i == 0 { NONE } else { seq.full[i - 1] };
        let (block, window) = (seq.full[i], *seq.window_at(i));
        let (known, shared) = self.tree.closest(parent, &self.tree.keys(block)[..rows]);
        if shared < rows {
            self.drop_beginning(known, shared);
            self.tree.link(parent, block, window, rows);
            seq.borrows = true;
        }
    }

    /// Gives back the KV blocks from the `from`-th on, own and held.
    fn drop_blocks(&mut self, seq: &mut Seq, from: usize) {
        while seq.full.len() > from {
            let i = seq.full.len() - 1;
            let block = seq.full.pop().expect("one more than `from`");
            let window = if i >= seq.passed { seq.window.pop() } else { None };
            if i < seq.held() {
                if window.is_some() {
                    self.tree.release_window(block);
                }
                self.tree.release(block);
                if seq.borrows {
                    seq.borrows = false;
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

fn blocks_for(rows: u32) -> usize {
    rows.div_ceil(BLOCK) as usize
}

impl KvPool for Pool {
    fn open(&mut self, id: SeqId, prompt: &[PositionKey]) -> Result<u32> {
        // The last token of a prompt always runs: its logits are needed.
        let reusable = if self.options.prefix_caching { prompt.len().saturating_sub(1) } else { 0 };
        let (path, known) = self.known(&prompt[..reusable]);
        let rows = self.resumable(&path, known);
        let mut seq = Seq {
            len: rows as u32,
            shared: rows / KV_BLOCK_SIZE,
            borrows: !rows.is_multiple_of(KV_BLOCK_SIZE),
            passed: self.oldest(rows as u32),
            // All it can come to: growing is not to allocate.
            full: Vec::with_capacity(self.options.blocks.full),
            window: Vec::with_capacity(self.window_span().min(self.options.blocks.window)),
        };
        for (i, &block) in path.iter().enumerate().take(seq.held()) {
            self.tree.hold(block);
            seq.full.push(block);
            if i >= seq.passed {
                self.tree.hold_window(block);
                seq.window.push(self.tree.window(block));
            }
        }
        let before = self.seqs.insert(id, seq);
        assert!(before.is_none(), "sequence {} is already open", id.0);
        Ok(rows as u32)
    }

    fn reserve(&mut self, id: SeqId, end: u32, copies: &mut Vec<BlockCopy>) -> Result<()> {
        let mut seq = std::mem::take(self.seq_mut(id));
        // KV blocks are reserved in both groups alike and leave at the old end alone.
        let more = blocks_for(end).saturating_sub(seq.full.len());
        let copy = usize::from(seq.borrows && end > seq.len);
        let free = self.free();
        let room = more + copy <= free.full && more + copy <= free.window;
        // Without room for a copy, its only user may take the borrowed KV block itself.
        let takes = copy == 1 && self.tree.users(seq.full[seq.shared]) == 1;
        if !(room || takes && more <= free.full && more <= free.window) {
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
            self.own_borrowed(&mut seq, copies, room);
        }
        for _ in 0..more {
            let (full, window) = (self.take_full(), self.take_window());
            seq.full.push(full);
            seq.window.push(window);
        }
        *self.seq_mut(id) = seq;
        Ok(())
    }

    fn commit(&mut self, id: SeqId, keys: &[PositionKey]) {
        let mut seq = std::mem::take(self.seq_mut(id));
        let end = seq.len + keys.len() as u32;
        assert!(blocks_for(end) <= seq.full.len(), "committed rows were reserved");
        assert!(keys.is_empty() || !seq.borrows, "committed rows were reserved");
        for &key in keys {
            let block = seq.full[(seq.len / BLOCK) as usize];
            self.tree.set_key(block, (seq.len % BLOCK) as usize, key);
            seq.len += 1;
            if seq.len.is_multiple_of(BLOCK) {
                self.share(&mut seq);
            }
        }
        let passed = self.oldest(seq.len);
        for i in seq.passed..passed {
            self.tree.release_window(seq.full[i]);
        }
        seq.window.drain(..passed - seq.passed);
        seq.passed = passed;
        *self.seq_mut(id) = seq;
    }

    fn truncate(&mut self, id: SeqId, len: u32) {
        let mut seq = std::mem::take(self.seq_mut(id));
        assert!(len <= seq.len, "truncated to {len}, the length is {}", seq.len);
        self.drop_blocks(&mut seq, blocks_for(len));
        // The last KV block left may be a node of which only the first rows stay.
        if !len.is_multiple_of(BLOCK) && seq.shared == blocks_for(len) {
            seq.shared -= 1;
            seq.borrows = true;
        }
        seq.len = len;
        // Further back than the window was: what left it may still be in the tree.
        let oldest = self.oldest(len).min(seq.passed);
        for i in (oldest..seq.passed.min(seq.full.len())).rev() {
            self.tree.hold_window(seq.full[i]);
            seq.window.insert(0, self.tree.window(seq.full[i]));
        }
        seq.passed = oldest;
        *self.seq_mut(id) = seq;
    }

    fn len(&self, id: SeqId) -> u32 {
        self.seq(id).len
    }

    fn block_table(&self, id: SeqId) -> BlockTable<'_> {
        let seq = self.seq(id);
        let window_base = (seq.passed * KV_BLOCK_SIZE) as u32;
        BlockTable { full: &seq.full, window: &seq.window, window_base }
    }

    fn close(&mut self, id: SeqId) {
        let mut seq = self.seqs.remove(&id).expect("an open sequence");
        self.leave_tail(&mut seq);
        self.drop_blocks(&mut seq, 0);
    }

    fn free(&self) -> BlockCount {
        BlockCount {
            full: self.free_full.len() + self.tree.idle,
            window: self.free_window.len() + self.tree.idle_windows,
        }
    }

    fn total(&self) -> BlockCount {
        self.options.blocks
    }

    fn offload(&mut self) -> Option<&mut dyn KvOffload> {
        self.evicted.is_some().then_some(self as &mut dyn KvOffload)
    }

    fn worst_case(&self, rows: u32) -> BlockCount {
        BlockCount { full: blocks_for(rows), window: blocks_for(rows).min(self.window_span()) }
    }
}
