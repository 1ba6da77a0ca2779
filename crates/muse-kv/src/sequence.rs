//! The KV blocks of an open sequence: first those it shares with the prefix tree, then its own.

/// An open sequence. KV block `i` of `full` holds positions `64 i ..`, shared or not.
#[derive(Default)]
pub(crate) struct Sequence {
    /// Committed positions.
    pub(crate) len: u32,
    /// Leading KV blocks that are nodes of the tree, all of them complete.
    pub(crate) shared: usize,
    /// The KV block behind them is a node of which only the first positions are this sequence's: it
    /// is copied before anything is written to it.
    pub(crate) shares_partial: bool,
    pub(crate) full: Vec<u32>,
    pub(crate) window: Vec<u32>,
    /// KV blocks before the first of `window`: those that left the window.
    pub(crate) window_offset: usize,
}

impl Sequence {
    /// Its block of the window group beside `full[i]`.
    pub(crate) fn window_at(&mut self, i: usize) -> &mut u32 {
        &mut self.window[i - self.window_offset]
    }

    /// Number of its KV blocks that are nodes of the tree.
    pub(crate) fn shared_blocks(&self) -> usize {
        self.shared + usize::from(self.shares_partial)
    }
}
