//! From a block's hidden rows to drafts: row `j` of a block drafts the token at its own position.

use muse_core::Result;
use muse_core::contract::{
    Anchor, Backend, DraftToken, EmbeddingAndLmHead, History, SampleRow, Sampled, Sampling, recycle,
};

use crate::drafter::Dflash;
use crate::forward::Scratch;

/// What choosing tokens needs.
pub(crate) struct Select<B: Backend> {
    /// `[max_anchors · (block - 1), vocab]`
    logits: B::Buf,
    greedy: Sampling,
    nothing: History,
    /// Block rows that become drafts.
    picked: Vec<u32>,
    /// Kept between passes for its memory.
    asks: Vec<SampleRow<'static>>,
    answers: Vec<Sampled>,
}

impl<B: Backend> Select<B> {
    pub(crate) fn new(backend: &B, rows: usize, vocab: usize) -> Result<Self> {
        Ok(Self {
            logits: backend.alloc(rows, vocab)?,
            greedy: Sampling::default(),
            nothing: History::default(),
            picked: Vec::with_capacity(rows),
            asks: Vec::with_capacity(rows),
            answers: Vec::with_capacity(rows),
        })
    }
}

impl<B: Backend> Dflash<B> {
    /// Draft tokens from the blocks in `x`. Only wanted rows meet the head. The target's multiplier and
    /// cap do not move the best token; they make its probability comparable with the target's own.
    pub(crate) fn select(
        &mut self,
        anchors: &[Anchor<'_>],
        head: &dyn EmbeddingAndLmHead<B>,
        out: &mut [Vec<DraftToken>],
    ) -> Result<()> {
        let width = self.spec.draft_block - 1;
        let Self { backend, spec, weights, scratch, select, logit_scale, logit_softcap, .. } = self;
        let Scratch { x, normed, branch, .. } = scratch;
        select.picked.clear();
        for (block, anchor) in anchors.iter().enumerate() {
            let first = block * spec.draft_block + 1;
            let wanted = first..first + anchor.max.min(width);
            select.picked.extend(wanted.map(|row| row as u32));
        }
        let rows = select.picked.len();
        backend.copy(x, &select.picked, branch, 0, 0)?;
        backend.rms_norm(branch, rows, Some(&weights.output_norm), spec.norm_eps, normed)?;
        head.lm_head(normed, rows, &mut select.logits)?;
        backend.scale_softcap(&mut select.logits, rows, *logit_scale, *logit_softcap)?;

        let mut asks: Vec<SampleRow<'_>> = recycle(std::mem::take(&mut select.asks));
        asks.extend((0..rows).map(|row| SampleRow {
            row,
            sampling: &select.greedy,
            history: &select.nothing,
            drafted: &[],
            mask: None,
            position: 0, // Greedy choices draw no noise.
            logprobs: Some(0),
        }));
        select.answers.clear();
        backend.sample(&select.logits, &asks, &mut select.answers)?;
        select.asks = recycle(asks);

        let mut answers = select.answers.iter();
        for (anchor, out) in anchors.iter().zip(out) {
            let draft = |p: &Sampled| DraftToken { token: p.token, confidence: p.logprob.exp() };
            out.extend(answers.by_ref().take(anchor.max.min(width)).map(draft));
        }
        Ok(())
    }
}
