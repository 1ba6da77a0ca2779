//! The KV blocks of one open sequence: first those it shares with the tree, then its own.

/// An open sequence. KV block `i` of `full` holds positions `64 i ..`, whoever it belongs to.
#[derive(Default)]
pub(crate) struct Seq {
    /// Rows committed.
    pub(crate) len: u32,
    /// Leading KV blocks that are nodes of the tree, all of them complete.
    pub(crate) shared: usize,
    /// The KV block behind them is a node of which only the first rows are this sequence's: it is
    /// copied before anything is written to it.
    pub(crate) borrows: bool,
    pub(crate) full: Vec<u32>,
    pub(crate) window: Vec<u32>,
    /// KV blocks before the first of `window`.
    pub(crate) passed: usize,
}

impl Seq {
    /// KV blocks of the window group that it still sees, by their number in `full`.
    pub(crate) fn window_at(&mut self, i: usize) -> &mut u32 {
        &mut self.window[i - self.passed]
    }

    /// KV blocks that belong to nodes of the tree.
    pub(crate) fn held(&self) -> usize {
        self.shared + usize::from(self.borrows)
    }
}
