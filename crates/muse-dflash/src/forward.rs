//! The drafter's two passes: appending context to its KV blocks, and running draft blocks.

use std::sync::Arc;

use muse_core::Result;
use muse_core::contract::{
    Backend, DrafterSpec, MAX_DEFERRED_ROWS, Mask, ModelSizes, Rope, SeqSlice,
};

use crate::weights::{Layer, Weights, head_shape};

/// The layers with their KV stores and buffers.
pub(crate) struct Network<B: Backend> {
    pub(crate) backend: Arc<B>,
    pub(crate) spec: DrafterSpec,
    pub(crate) weights: Weights<B>,
    /// One KV store per layer.
    pub(crate) kv: Vec<B::Kv>,
    pub(crate) scratch: Scratch<B>,
}

/// Buffers of a pass: of `max_num_batched_tokens` context tokens or `max_num_seqs` draft blocks.
pub(crate) struct Scratch<B: Backend> {
    /// Gathered captured hidden states. `[context tokens, captured layers · hidden]`
    pub(crate) captured: B::Buf,
    /// The residual stream. `[tokens, hidden]`
    pub(crate) x: B::Buf,
    /// Output of a norm. `[tokens, hidden]`
    pub(crate) normed: B::Buf,
    /// Output of a sub-layer; later the rows of `x` that become draft tokens. `[tokens, hidden]`
    pub(crate) branch: B::Buf,
    /// `[draft block tokens, heads · head_dim]`, as is `attn_output`.
    q: B::Buf,
    /// `[tokens, kv_heads · head_dim]`, as is `v`.
    k: B::Buf,
    v: B::Buf,
    /// Output of the attention before its projection.
    attn_output: B::Buf,
    /// `[draft block tokens, ffn]`, as is `up`.
    ffn_gate: B::Buf,
    up: B::Buf,
}

impl<B: Backend> Scratch<B> {
    pub(crate) fn new(backend: &B, spec: &DrafterSpec, sizes: &ModelSizes) -> Result<Self> {
        let bufs = shapes(spec, sizes).map(|(rows, cols)| backend.alloc(rows, cols));
        let [captured, x, normed, branch, k, v, q, attn_output, ffn_gate, up] = bufs;
        Ok(Self {
            captured: captured?,
            x: x?,
            normed: normed?,
            branch: branch?,
            q: q?,
            k: k?,
            v: v?,
            attn_output: attn_output?,
            ffn_gate: ffn_gate?,
            up: up?,
        })
    }
}

/// Rows and columns of the buffers of a pass.
fn shapes(spec: &DrafterSpec, sizes: &ModelSizes) -> [(usize, usize); 10] {
    let DrafterSpec { hidden, ffn, heads, kv_heads, head_dim, .. } = *spec;
    let (query, key) = (heads * head_dim, kv_heads * head_dim);
    let blocks = sizes.max_num_seqs * spec.draft_block;
    let rows = blocks.max(sizes.max_num_batched_tokens);
    let either = [hidden, hidden, hidden, key, key].map(|cols| (rows, cols));
    let block = [query, query, ffn, ffn].map(|cols| (blocks, cols));
    let [x, normed, branch, k, v] = either;
    let [q, attn_output, gate, up] = block;
    let captured = (sizes.max_num_batched_tokens, spec.target_layers.len() * hidden);
    [captured, x, normed, branch, k, v, q, attn_output, gate, up]
}

/// Bytes of the buffers beside weights and KV blocks: those of a pass, the logits, and the captured
/// hidden states that an engine keeps for the drafter.
pub(crate) fn scratch_bytes(spec: &DrafterSpec, vocab: usize, sizes: &ModelSizes) -> usize {
    let pass: usize = shapes(spec, sizes).iter().map(|(rows, cols)| rows * cols).sum();
    let deferred = MAX_DEFERRED_ROWS * spec.target_layers.len() * spec.hidden;
    size_of::<f32>() * (pass + deferred + sizes.max_num_seqs * (spec.draft_block - 1) * vocab)
}

impl<B: Backend> Network<B> {
    /// Writes the K and V of the gathered context tokens. All layers take the same projected hidden
    /// state, without a norm of their own.
    pub(crate) fn write_context(&mut self, slices: &[SeqSlice<'_>], rows: usize) -> Result<()> {
        let Self { backend, spec, weights, kv, scratch, .. } = self;
        let Scratch { captured, normed, branch, k, v, .. } = scratch;
        let rope = Rope { head_dim: spec.head_dim, theta: spec.rope_theta };
        backend.linear(captured, rows, &mut [(&weights.fc, &mut *branch)])?;
        backend.rms_norm(branch, rows, Some(&weights.context_norm), spec.norm_eps, normed)?;
        for (layer, kv) in weights.layers.iter().zip(kv) {
            let heads = &layer.heads;
            backend.linear(normed, rows, &mut [(&heads.k, &mut *k), (&heads.v, &mut *v)])?;
            backend.head_norm(k, rows, &heads.k_norm, spec.norm_eps)?;
            backend.rope(k, slices, &rope)?;
            backend.write_kv(kv, slices, k, v)?;
        }
        Ok(())
    }

    /// Runs the embedded draft blocks in `x` through all layers. Their K and V are overwritten when
    /// the accepted tokens are appended.
    pub(crate) fn run_blocks(&mut self, slices: &[SeqSlice<'_>], rows: usize) -> Result<()> {
        for index in 0..self.spec.layers {
            self.attention(index, slices, rows)?;
            self.feed_forward(index, rows)?;
        }
        Ok(())
    }

    /// `x += Wo attend(q, k, v)`
    fn attention(&mut self, index: usize, slices: &[SeqSlice<'_>], rows: usize) -> Result<()> {
        let Self { backend, spec, weights, kv, scratch, .. } = self;
        let (layer, kv): (&Layer<B>, _) = (&weights.layers[index], &mut kv[index]);
        let Scratch { x, normed, branch, q, k, v, attn_output, .. } = scratch;
        backend.rms_norm(x, rows, Some(&layer.attn_norm), spec.norm_eps, normed)?;
        let heads = &layer.heads;
        let into = &mut [(&heads.q, &mut *q), (&heads.k, &mut *k), (&heads.v, &mut *v)];
        backend.linear(normed, rows, into)?;
        let (shape, mask) = (head_shape(spec), Mask::DraftBlock { reach: spec.reach });
        heads.attend(backend, &shape, mask, slices, [q, k, v, attn_output], kv)?;
        backend.linear(attn_output, rows, &mut [(&heads.output, &mut *branch)])?;
        backend.add(x, rows, branch)
    }

    /// `x += Wdown (silu(Wgate h) · Wup h)`
    fn feed_forward(&mut self, index: usize, rows: usize) -> Result<()> {
        let Self { backend, spec, weights, scratch, .. } = self;
        let layer: &Layer<B> = &weights.layers[index];
        let Scratch { x, normed, branch, ffn_gate, up, .. } = scratch;
        backend.rms_norm(x, rows, Some(&layer.ffn_norm), spec.norm_eps, normed)?;
        layer.ffn.run(backend, normed, rows, [ffn_gate, up], branch)?;
        backend.add(x, rows, branch)
    }
}
