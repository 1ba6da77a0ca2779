//! From the hidden states of draft blocks to draft tokens: each position drafts its own token.

use muse_core::Result;
use muse_core::contract::{
    Anchor, Backend, DraftToken, EmbeddingAndLmHead, History, SampleRow, Sampled, Sampling,
    TextSpec, recycle,
};

use crate::forward::{Network, Scratch};

/// Buffers of sampling draft tokens.
pub(crate) struct Select<B: Backend> {
    /// `[max_num_seqs · (draft_block - 1), vocab]`
    logits: B::Buf,
    logit_scale: f32,
    logit_softcap: Option<f32>,
    greedy: Sampling,
    no_history: History,
    /// Rows of the draft blocks that become draft tokens.
    draft_rows: Vec<u32>,
    /// Kept between passes for its memory.
    sample_rows: Vec<SampleRow<'static>>,
    sampled: Vec<Sampled>,
}

impl<B: Backend> Select<B> {
    pub(crate) fn new(backend: &B, rows: usize, target: &TextSpec) -> Result<Self> {
        Ok(Self {
            logits: backend.alloc(rows, target.vocab)?,
            logit_scale: target.logit_scale,
            logit_softcap: target.logit_softcap,
            greedy: Sampling::default(),
            no_history: History::default(),
            draft_rows: Vec::with_capacity(rows),
            sample_rows: Vec::with_capacity(rows),
            sampled: Vec::with_capacity(rows),
        })
    }

    /// Draft tokens from the draft blocks in `x`. The LM head runs for requested ones only. The
    /// target model's scale and soft cap do not change the best token; they make its probability
    /// comparable with the target model's.
    pub(crate) fn run(
        &mut self,
        network: &mut Network<B>,
        anchors: &[Anchor<'_>],
        head: &dyn EmbeddingAndLmHead<B>,
        out: &mut [Vec<DraftToken>],
    ) -> Result<()> {
        let Network { backend, spec, weights, scratch, .. } = network;
        let width = spec.draft_block - 1;
        let Scratch { x, normed, branch, .. } = scratch;
        self.draft_rows.clear();
        for (block, anchor) in anchors.iter().enumerate() {
            let first = block * spec.draft_block + 1;
            let rows = first..first + anchor.max.min(width);
            self.draft_rows.extend(rows.map(|row| row as u32));
        }
        let rows = self.draft_rows.len();
        backend.copy(x, &self.draft_rows, branch, 0, 0)?;
        backend.rms_norm(branch, rows, Some(&weights.output_norm), spec.norm_eps, normed)?;
        head.lm_head(normed, rows, &mut self.logits)?;
        backend.scale_softcap(&mut self.logits, rows, self.logit_scale, self.logit_softcap)?;

        let mut sample_rows: Vec<SampleRow<'_>> = recycle(std::mem::take(&mut self.sample_rows));
        sample_rows.extend((0..rows).map(|row| SampleRow {
            row,
            sampling: &self.greedy,
            history: &self.no_history,
            drafted: &[],
            mask: None,
            position: 0, // Greedy sampling needs no noise.
            logprobs: Some(0),
        }));
        self.sampled.clear();
        backend.sample(&self.logits, &sample_rows, &mut self.sampled)?;
        self.sample_rows = recycle(sample_rows);

        let mut sampled = self.sampled.iter();
        for (anchor, out) in anchors.iter().zip(out) {
            let draft = |p: &Sampled| DraftToken { token: p.token, confidence: p.logprob.exp() };
            out.extend(sampled.by_ref().take(anchor.max.min(width)).map(draft));
        }
        Ok(())
    }
}
