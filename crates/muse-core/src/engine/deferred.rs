//! Positions whose captured hidden states are kept for the drafter instead of being appended to its
//! context in the step that ran them. An append reads all of the drafter's context weights, however
//! few rows it has: while nobody drafts, one append for many steps costs little.

use super::models::Models;
use crate::Result;
use crate::contract::{
    Backend, ContextSlice, Drafter, KvPool, MAX_DEFERRED_ROWS, SeqId, SeqSlice, recycle,
};

/// Captured hidden states that the drafter has not been given yet.
///
/// A sequence defers positions of its last, incomplete KV block only: blocks that others may share
/// always hold the drafter's K and V of all their positions.
pub(super) struct DeferredContext<B: Backend> {
    /// `[MAX_DEFERRED_ROWS, captured width]`; none without a drafter that reads any.
    hidden: Option<B::Buf>,
    /// In the order of their rows, so that positions of a sequence ascend.
    entries: Vec<Deferred>,
    rows: usize,
    /// Kept between steps for its memory.
    source_rows: Vec<u32>,
}

/// Consecutive positions of one sequence.
struct Deferred {
    seq: SeqId,
    start: u32,
    len: usize,
    first_row: usize,
}

impl<B: Backend> DeferredContext<B> {
    /// Nothing deferred. Allocates for a drafter.
    ///
    /// # Errors
    /// When the device has no memory for the rows.
    pub(super) fn new(backend: &B, drafter: Option<&dyn Drafter<B>>) -> Result<Self> {
        let hidden = drafter
            .filter(|drafter| drafter.captured_width() > 0)
            .map(|drafter| backend.alloc(MAX_DEFERRED_ROWS, drafter.captured_width()))
            .transpose()?;
        let capacity = if hidden.is_some() { MAX_DEFERRED_ROWS } else { 0 };
        Ok(Self {
            hidden,
            entries: Vec::with_capacity(capacity),
            rows: 0,
            source_rows: Vec::with_capacity(capacity),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether `rows` more can be kept.
    pub(super) fn fits(&self, rows: usize) -> bool {
        self.hidden.is_some() && self.rows + rows <= MAX_DEFERRED_ROWS
    }

    /// Whether positions of a sequence are deferred.
    pub(super) fn contains(&self, seq: SeqId) -> bool {
        self.entries.iter().any(|entry| entry.seq == seq)
    }

    /// Keeps the rows of a pass that belong to `context`, for sequences `seqs`. They must fit.
    pub(super) fn push(
        &mut self,
        backend: &B,
        seqs: impl Iterator<Item = SeqId>,
        context: &[ContextSlice<'_>],
        captured_hidden: &B::Buf,
    ) -> Result<()> {
        let first = self.rows;
        self.source_rows.clear();
        for (seq, ContextSlice { slice, first_row }) in seqs.zip(context) {
            let row = *first_row as u32;
            self.source_rows.extend(row..row + slice.len as u32);
            let (start, len) = (slice.start, slice.len);
            self.entries.push(Deferred { seq, start, len, first_row: self.rows });
            self.rows += len;
        }
        let hidden = self.hidden.as_mut().expect("allocated for the drafter");
        backend.copy(captured_hidden, &self.source_rows, hidden, first, 0)
    }

    /// Appends everything deferred to the drafter's context. `buffer` is empty, kept for its memory.
    pub(super) fn append(
        &mut self,
        models: &mut Models<B>,
        pool: &dyn KvPool,
        buffer: &mut Vec<ContextSlice<'static>>,
    ) -> Result<()> {
        let (Some(hidden), Some(drafter)) = (&self.hidden, &mut models.drafter) else {
            return Ok(());
        };
        let mut context: Vec<ContextSlice<'_>> = recycle(std::mem::take(buffer));
        context.extend(self.entries.drain(..).map(|Deferred { seq, start, len, first_row }| {
            ContextSlice {
                slice: SeqSlice { start, len, blocks: pool.block_table(seq) },
                first_row,
            }
        }));
        self.rows = 0;
        drafter.append_context(&context, hidden)?;
        *buffer = recycle(context);
        Ok(())
    }

    /// Drops what a sequence deferred. Returns the first of those positions.
    pub(super) fn forget(&mut self, seq: SeqId) -> Option<u32> {
        let first = self.entries.iter().find(|entry| entry.seq == seq).map(|entry| entry.start);
        self.entries.retain(|entry| entry.seq != seq);
        if self.entries.is_empty() {
            self.rows = 0;
        }
        first
    }
}
