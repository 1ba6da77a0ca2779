//! The pool: free pages of the two groups, open sequences, and what is kept for later ones.

use std::collections::HashMap;

use muse_core::contract::{
    ColdPage, KvPool, PAGE_TOKENS, PageCopy, PageCount, PageGroup, PageKey, PageTable, PrefixName,
    SeqId, Spill,
};
use muse_core::{Error, Result};

use crate::prefix::{NONE, Tree};
use crate::seq::Seq;

const PAGE: u32 = PAGE_TOKENS as u32;

/// Sizes of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Pages of the full group.
    pub full_pages: usize,
    /// Pages of the window group.
    pub window_pages: usize,
    /// Farthest distance back, inclusive, that the next position still sees in the window group.
    pub reach: u32,
    /// The most rows that a step writes past the length of a sequence.
    pub block: u32,
}

/// Pages of two groups and who holds them.
///
/// Rows of complete pages are shared as soon as they are committed: a sequence that comes to the
/// same rows gives its own page back. Closed sequences leave theirs behind until the space is
/// needed; what went unused longest goes first. A prefix can be taken up again at a length whose
/// window is still there, and a sequence be truncated to such a length or to nothing.
pub struct Pool {
    options: PoolOptions,
    pub(crate) free_full: Vec<u32>,
    pub(crate) free_window: Vec<u32>,
    pub(crate) tree: Tree,
    seqs: HashMap<SeqId, Seq>,
    /// Complete pages that were evicted, where somebody keeps them.
    pub(crate) evicted: Option<Vec<ColdPage>>,
}

impl Pool {
    /// A pool with all pages free that forgets what it evicts.
    pub fn new(options: PoolOptions) -> Self {
        Self::build(options, PrefixName::default(), None)
    }

    /// A pool that tells of what it evicts, named from `root` on, and takes it back.
    pub fn spilling(options: PoolOptions, root: PrefixName) -> Self {
        Self::build(options, root, Some(Vec::new()))
    }

    /// Its sizes.
    pub fn options(&self) -> PoolOptions {
        self.options
    }

    fn build(options: PoolOptions, root: PrefixName, evicted: Option<Vec<ColdPage>>) -> Self {
        // Low numbers go out first: a lightly used cache stays in few pages of memory.
        let free = |pages: usize| (0..pages as u32).rev().collect();
        Self {
            free_full: free(options.full_pages),
            free_window: free(options.window_pages),
            tree: Tree::new(options.full_pages, root),
            options,
            seqs: HashMap::new(),
            evicted,
        }
    }

    fn seq(&self, seq: SeqId) -> &Seq {
        self.seqs.get(&seq).unwrap_or_else(|| panic!("sequence {} is not open", seq.0))
    }

    fn seq_mut(&mut self, seq: SeqId) -> &mut Seq {
        self.seqs.get_mut(&seq).unwrap_or_else(|| panic!("sequence {} is not open", seq.0))
    }

    /// First page of the window group that a sequence of `len` rows still sees.
    fn oldest(&self, len: u32) -> usize {
        (len.saturating_sub(self.options.reach) / PAGE) as usize
    }

    /// The most pages of the window group that a sequence has at one time: a run of n positions
    /// touches one page more than it fills when it begins late in one.
    fn window_span(&self) -> usize {
        pages_for(self.options.reach.saturating_add(self.options.block)) + 1
    }

    /// Pages of the tree that hold the leading rows of `keys`, and the rows they hold.
    pub(crate) fn known(&self, keys: &[PageKey]) -> (Vec<u32>, usize) {
        let (mut path, mut parent) = (Vec::new(), NONE);
        loop {
            let done = path.len() * PAGE_TOKENS;
            let (id, shared) = self.tree.closest(parent, &keys[done..]);
            if shared > 0 {
                path.push(id);
            }
            if shared < PAGE_TOKENS {
                return (path, done + shared);
            }
            parent = id;
        }
    }

    /// The longest length up to `rows` that can be taken up: the pages of its window are there.
    fn resumable(&self, path: &[u32], mut rows: usize) -> usize {
        loop {
            let seen = self.oldest(rows as u32)..rows.div_ceil(PAGE_TOKENS);
            let gap = seen.rev().find(|&i| self.tree.window(path[i]) == NONE);
            match gap {
                Some(page) => rows = page * PAGE_TOKENS,
                None => return rows,
            }
        }
    }

    /// A free page of the full group, evicting for it. The caller has counted: there is one.
    pub(crate) fn take_full(&mut self) -> u32 {
        if let Some(page) = self.free_full.pop() {
            return page;
        }
        let leaf = self.tree.oldest_leaf().expect("counted as evictable");
        self.evict(leaf);
        self.free_full.pop().expect("just evicted")
    }

    pub(crate) fn take_window(&mut self) -> u32 {
        if let Some(page) = self.free_window.pop() {
            return page;
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

    /// Makes the borrowed page the sequence's own: by a copy, or when there is no room for one
    /// and nobody else uses it, by taking it out of the tree.
    fn own_borrowed(&mut self, seq: &mut Seq, copies: &mut Vec<PageCopy>, room: bool) {
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
        let rows = (seq.len % PAGE) as usize;
        self.tree.copy_keys(from, to, rows);
        for (group, from, to) in
            [(PageGroup::Full, from, to), (PageGroup::Window, from_window, to_window)]
        {
            copies.push(PageCopy { group, from, to, rows });
        }
        seq.full[i] = to;
        *seq.window_at(i) = to_window;
    }

    /// Shares the page behind the shared ones, which has just become complete.
    fn share(&mut self, seq: &mut Seq) {
        let i = seq.shared;
        let parent = if i == 0 { NONE } else { seq.full[i - 1] };
        let (page, window) = (seq.full[i], *seq.window_at(i));
        let (known, rows) = self.tree.closest(parent, self.tree.keys(page));
        seq.shared += 1;
        if rows < PAGE_TOKENS {
            self.drop_beginning(known, rows);
            self.tree.link(parent, page, window, PAGE_TOKENS);
            return;
        }
        // Equal keys after equal prefixes have equal rows: one page is enough.
        self.tree.hold(known);
        self.free_full.push(page);
        seq.full[i] = known;
        if self.tree.window(known) == NONE {
            self.tree.give_window(known, window);
        } else {
            self.tree.hold_window(known);
            self.free_window.push(window);
            *seq.window_at(i) = self.tree.window(known);
        }
    }

    /// Evicts an unused node that only holds the beginning of a page about to be linked.
    pub(crate) fn drop_beginning(&mut self, known: u32, rows: usize) {
        if known != NONE && self.tree.users(known) == 0 && self.tree.rows(known) == rows {
            self.evict(known);
        }
    }

    /// Leaves the rows behind the shared pages in the tree, for a sequence that goes on there.
    fn leave_tail(&mut self, seq: &mut Seq) {
        let (i, rows) = (seq.shared, (seq.len % PAGE) as usize);
        if rows == 0 || seq.borrows {
            return;
        }
        let parent = if i == 0 { NONE } else { seq.full[i - 1] };
        let (page, window) = (seq.full[i], *seq.window_at(i));
        let (known, shared) = self.tree.closest(parent, &self.tree.keys(page)[..rows]);
        if shared < rows {
            self.drop_beginning(known, shared);
            self.tree.link(parent, page, window, rows);
            seq.borrows = true;
        }
    }

    /// Gives back the pages from the `from`-th on, own and held.
    fn drop_pages(&mut self, seq: &mut Seq, from: usize) {
        while seq.full.len() > from {
            let i = seq.full.len() - 1;
            let page = seq.full.pop().expect("one more than `from`");
            let window = if i >= seq.passed { seq.window.pop() } else { None };
            if i < seq.held() {
                if window.is_some() {
                    self.tree.release_window(page);
                }
                self.tree.release(page);
                if seq.borrows {
                    seq.borrows = false;
                } else {
                    seq.shared -= 1;
                }
            } else {
                self.free_full.push(page);
                self.free_window.extend(window);
            }
        }
    }
}

fn pages_for(rows: u32) -> usize {
    rows.div_ceil(PAGE) as usize
}

impl KvPool for Pool {
    fn open(&mut self, id: SeqId, prompt: &[PageKey]) -> Result<u32> {
        let (path, known) = self.known(&prompt[..prompt.len().saturating_sub(1)]);
        let rows = self.resumable(&path, known);
        let mut seq = Seq {
            len: rows as u32,
            shared: rows / PAGE_TOKENS,
            borrows: !rows.is_multiple_of(PAGE_TOKENS),
            passed: self.oldest(rows as u32),
            // All it can come to: growing is not to allocate.
            full: Vec::with_capacity(self.options.full_pages),
            window: Vec::with_capacity(self.window_span().min(self.options.window_pages)),
        };
        for (i, &page) in path.iter().enumerate().take(seq.held()) {
            self.tree.hold(page);
            seq.full.push(page);
            if i >= seq.passed {
                self.tree.hold_window(page);
                seq.window.push(self.tree.window(page));
            }
        }
        let before = self.seqs.insert(id, seq);
        assert!(before.is_none(), "sequence {} is already open", id.0);
        Ok(rows as u32)
    }

    fn reserve(&mut self, id: SeqId, end: u32, copies: &mut Vec<PageCopy>) -> Result<()> {
        let mut seq = std::mem::take(self.seq_mut(id));
        // Pages are reserved in both groups alike and leave at the old end alone.
        let more = pages_for(end).saturating_sub(seq.full.len());
        let copy = usize::from(seq.borrows && end > seq.len);
        let free = self.free();
        let room = more + copy <= free.full && more + copy <= free.window;
        // Without room for a copy, its only user may take the borrowed page itself.
        let takes = copy == 1 && self.tree.users(seq.full[seq.shared]) == 1;
        if !(room || takes && more <= free.full && more <= free.window) {
            *self.seq_mut(id) = seq;
            return Err(Error::Exhausted(format!(
                "positions up to {end} need {} pages more of each group, {} full and {} window \
                 pages are free: retry when other requests have ended",
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

    fn commit(&mut self, id: SeqId, keys: &[PageKey]) {
        let mut seq = std::mem::take(self.seq_mut(id));
        let end = seq.len + keys.len() as u32;
        assert!(pages_for(end) <= seq.full.len(), "committed rows were reserved");
        assert!(keys.is_empty() || !seq.borrows, "committed rows were reserved");
        for &key in keys {
            let page = seq.full[(seq.len / PAGE) as usize];
            self.tree.set_key(page, (seq.len % PAGE) as usize, key);
            seq.len += 1;
            if seq.len.is_multiple_of(PAGE) {
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
        self.drop_pages(&mut seq, pages_for(len));
        // The last page left may be a node of which only the first rows stay.
        if !len.is_multiple_of(PAGE) && seq.shared == pages_for(len) {
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

    fn pages(&self, id: SeqId) -> PageTable<'_> {
        let seq = self.seq(id);
        let window_base = (seq.passed * PAGE_TOKENS) as u32;
        PageTable { full: &seq.full, window: &seq.window, window_base }
    }

    fn close(&mut self, id: SeqId) {
        let mut seq = self.seqs.remove(&id).expect("an open sequence");
        self.leave_tail(&mut seq);
        self.drop_pages(&mut seq, 0);
    }

    fn free(&self) -> PageCount {
        PageCount {
            full: self.free_full.len() + self.tree.idle,
            window: self.free_window.len() + self.tree.idle_windows,
        }
    }

    fn total(&self) -> PageCount {
        PageCount { full: self.options.full_pages, window: self.options.window_pages }
    }

    fn spill(&mut self) -> Option<&mut dyn Spill> {
        self.evicted.is_some().then_some(self as &mut dyn Spill)
    }

    fn worst_case(&self, rows: u32) -> PageCount {
        PageCount { full: pages_for(rows), window: pages_for(rows).min(self.window_span()) }
    }
}
