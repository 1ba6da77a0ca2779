//! A drafter that proposes a known completion, with a chosen rate of wrong tokens. It computes
//! `lm_head` like a real drafter, so that the speed of a target model can be measured without the
//! weights of a drafter for it.

use std::sync::{Arc, Mutex};

use muse_core::Result;
use muse_core::contract::{
    Anchor, Backend, BlockCopy, ContextSlice, DraftToken, Drafter, EmbeddingAndLmHead, KvBlocks,
    KvGroup, Token,
};
use muse_core::hash::hash64;

/// What is replayed.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Prompt and completion of the one sequence that runs.
    pub tokens: Vec<Token>,
    /// Chance that a draft token is right when those before it are.
    pub hit: f64,
}

/// The drafter.
pub struct Replay<B: Backend> {
    script: Arc<Mutex<Script>>,
    width: usize,
    vocab: usize,
    /// `[width, hidden]`
    hidden: B::Buf,
    /// `[width, vocab]`
    logits: B::Buf,
}

impl<B: Backend> Replay<B> {
    /// A drafter of `width` draft tokens, and its script, which is filled before anything runs.
    ///
    /// # Errors
    /// When the device has no memory for its buffers.
    pub fn new(
        backend: &B,
        width: usize,
        hidden: usize,
        vocab: usize,
    ) -> Result<(Self, Arc<Mutex<Script>>)> {
        let script = Arc::<Mutex<Script>>::default();
        let made = Self {
            script: Arc::clone(&script),
            width,
            vocab,
            hidden: backend.alloc(width, hidden)?,
            logits: backend.alloc(width, vocab)?,
        };
        Ok((made, script))
    }
}

impl<B: Backend> Drafter<B> for Replay<B> {
    fn captured_layers(&self) -> &[usize] {
        &[]
    }

    fn captured_width(&self) -> usize {
        0
    }

    fn width(&self) -> usize {
        self.width
    }

    fn window_reach(&self) -> u32 {
        0
    }

    fn append_context(&mut self, _: &[ContextSlice<'_>], _: &B::Buf) -> Result<()> {
        Ok(())
    }

    fn draft(
        &mut self,
        anchors: &[Anchor<'_>],
        head: &dyn EmbeddingAndLmHead<B>,
        out: &mut [Vec<DraftToken>],
    ) -> Result<()> {
        let script = self.script.lock().expect("no panic while it was held");
        for (anchor, out) in anchors.iter().zip(out) {
            let rows = anchor.max.min(self.width);
            head.lm_head(&self.hidden, rows, &mut self.logits)?;
            out.clear();
            out.extend((0..rows).map(|i| {
                let position = anchor.slice.start as usize + 1 + i;
                let share = |salt| hash64(position as u64, salt) as f64 / u64::MAX as f64;
                // Confidences of right and wrong tokens differ but overlap.
                let (off, confidence) = match share(1) < script.hit {
                    true => (0, 0.4 + 0.6 * share(2)),
                    false => (1, 0.7 * share(2)),
                };
                let known = script.tokens.get(position).map_or(0, |token| token.0);
                DraftToken {
                    token: Token((known + off) % self.vocab as u32),
                    confidence: confidence as f32,
                }
            }));
        }
        Ok(())
    }
}

impl<B: Backend> KvBlocks<B> for Replay<B> {
    fn copy_blocks(&mut self, _: &[BlockCopy]) -> Result<()> {
        Ok(())
    }

    fn save_block(&self, _: KvGroup, _: u32, _: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }

    fn load_block(&mut self, _: KvGroup, _: u32, _: &mut &[u8]) -> Result<()> {
        Ok(())
    }
}
