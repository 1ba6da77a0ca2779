//! The fake drafter: drafts the right token with a given probability, stores its context in KV blocks
//! like a real one and counts every position that it finds stale.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use muse_core::Result;
use muse_core::contract::{
    Anchor, Backend, BlockCopy, ContextSlice, DraftToken, Drafter, EmbeddingAndLmHead, KvBlocks,
    KvGroup, Token,
};
use muse_core::hash::hash64;

use super::FakeModel;
use super::rows::Cells;
use super::target::hidden;

/// A drafter that computes what its target model will sample.
pub struct FakeDrafter<B: Backend> {
    backend: Arc<B>,
    model: FakeModel,
    width: usize,
    reach: u32,
    hit: f64,
    context: Cells,
    log: Arc<DrafterLog>,
    trial: Vec<u64>,
}

/// What a fake drafter found in its context.
#[derive(Debug, Default)]
pub struct DrafterLog {
    /// Positions that did not hold the hidden state of the target model, or were never appended.
    pub stale: AtomicU64,
    /// Positions checked.
    pub checked: AtomicU64,
}

impl<B: Backend> FakeDrafter<B> {
    /// A drafter of up to `width` draft tokens, each right with probability `hit` for greedy
    /// requests, that attends to the last `reach` positions.
    pub fn new(backend: Arc<B>, model: FakeModel, width: usize, reach: u32, hit: f64) -> Self {
        Self {
            backend,
            context: Cells::new(model.options.window_blocks),
            model,
            width,
            reach,
            hit,
            log: Arc::default(),
            trial: Vec::with_capacity(width + 1),
        }
    }

    /// What it finds in its context.
    pub fn log(&self) -> Arc<DrafterLog> {
        Arc::clone(&self.log)
    }
}

/// What is stored at a position: its hidden state and its number.
fn cell(hidden: f32, position: u32) -> u64 {
    u64::from(hidden.to_bits()) << 32 | u64::from(position)
}

impl<B: Backend> Drafter<B> for FakeDrafter<B> {
    fn captured_layers(&self) -> &[usize] {
        &[0]
    }

    fn captured_width(&self) -> usize {
        1
    }

    fn width(&self) -> usize {
        self.width
    }

    fn window_reach(&self) -> u32 {
        self.reach
    }

    fn append_context(
        &mut self,
        context: &[ContextSlice<'_>],
        captured_hidden: &B::Buf,
    ) -> Result<()> {
        for context in context {
            for i in 0..context.slice.len {
                let mut value = [0.0];
                self.backend.read(captured_hidden, context.first_row + i, &mut value)?;
                let position = context.slice.start + i as u32;
                let cell = cell(value[0], position);
                self.context.put(KvGroup::Window, &context.slice.blocks, position, cell);
            }
        }
        Ok(())
    }

    fn draft(
        &mut self,
        anchors: &[Anchor<'_>],
        _: &dyn EmbeddingAndLmHead<B>,
        out: &mut [Vec<DraftToken>],
    ) -> Result<()> {
        self.model.spend((self.model.options.cost.draft)(anchors.len()));
        let target = self.model.rows.lock().expect("no panic while it was held");
        let Self { width, reach, hit, .. } = *self;
        for (anchor, out) in anchors.iter().zip(out) {
            let (blocks, start) = (&anchor.slice.blocks, anchor.slice.start);
            for p in start.saturating_sub(reach)..start {
                let row = self.context.at(KvGroup::Window, blocks, p);
                let stored = target.window.at(KvGroup::Window, blocks, p);
                let stale = row != cell(hidden(stored), p);
                self.log.stale.fetch_add(u64::from(stale), Ordering::Relaxed);
                self.log.checked.fetch_add(1, Ordering::Relaxed);
            }
            // Positions of its own block: none of them may later be taken for context.
            for p in start..=start + width as u32 {
                self.context.put(KvGroup::Window, blocks, p, u64::MAX);
            }
            out.clear();
            self.trial.clear();
            let mut token = anchor.token;
            for i in 0..anchor.max.min(width) {
                let position = start + i as u32;
                let hash =
                    target.hash(blocks, self.model.options.reach, token, position, &self.trial);
                self.trial.push(hash);
                let right = self.model.likeliest(hash);
                let share = |n| hash64(hash, n) as f64 / u64::MAX as f64;
                // Wrong tokens have a lower confidence on average.
                let confidence;
                (token, confidence) = if share(2) < hit {
                    (right, 0.4 + 0.6 * share(3))
                } else {
                    (Token((right.0 + 1) % self.model.options.vocab as u32), 0.7 * share(3))
                };
                out.push(DraftToken { token, confidence: confidence as f32 });
            }
        }
        Ok(())
    }
}

impl<B: Backend> KvBlocks<B> for FakeDrafter<B> {
    fn copy_blocks(&mut self, copies: &[BlockCopy]) -> Result<()> {
        self.context.copy(KvGroup::Window, copies);
        Ok(())
    }

    fn save_block(&self, group: KvGroup, block: u32, out: &mut Vec<u8>) -> Result<()> {
        if group == KvGroup::Window {
            self.context.save(block, out);
        }
        Ok(())
    }

    fn load_block(&mut self, group: KvGroup, block: u32, bytes: &mut &[u8]) -> Result<()> {
        if group == KvGroup::Window { self.context.load(block, bytes) } else { Ok(()) }
    }
}
