//! The drafter's two passes: context rows into the cache, and blocks to hidden rows.

use muse_core::Result;
use muse_core::contract::{Attention, Backend, DrafterSpec, Mask, Place, Rope};

use crate::config::DflashOptions;
use crate::drafter::Dflash;
use crate::weights::Layer;

/// Buffers of a pass: of `max_rows` context rows or of `max_anchors` blocks.
pub(crate) struct Scratch<B: Backend> {
    /// Gathered taps. `[context rows, taps · hidden]`
    pub(crate) tapped: B::Buf,
    /// The residual stream, later the block's gathered rows. `[rows, hidden]`
    pub(crate) x: B::Buf,
    /// A norm's output. `[rows, hidden]`
    pub(crate) normed: B::Buf,
    /// A sub-layer's output. `[rows, hidden]`
    pub(crate) branch: B::Buf,
    /// `[block rows, heads · head_dim]`, as is `mixed`.
    q: B::Buf,
    /// `[rows, kv_heads · head_dim]`, as is `v`.
    k: B::Buf,
    v: B::Buf,
    /// What attention mixed together of the values.
    mixed: B::Buf,
    /// `[block rows, ffn]`, as is `up`.
    ffn_gate: B::Buf,
    up: B::Buf,
}

impl<B: Backend> Scratch<B> {
    pub(crate) fn new(backend: &B, spec: &DrafterSpec, options: &DflashOptions) -> Result<Self> {
        let block_rows = options.max_anchors * spec.block;
        let rows = block_rows.max(options.max_rows);
        let (query, key) = (spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim);
        Ok(Self {
            tapped: backend.alloc(options.max_rows, spec.target_layers.len() * spec.hidden)?,
            x: backend.alloc(rows, spec.hidden)?,
            normed: backend.alloc(rows, spec.hidden)?,
            branch: backend.alloc(rows, spec.hidden)?,
            q: backend.alloc(block_rows, query)?,
            k: backend.alloc(rows, key)?,
            v: backend.alloc(rows, key)?,
            mixed: backend.alloc(block_rows, query)?,
            ffn_gate: backend.alloc(block_rows, spec.ffn)?,
            up: backend.alloc(block_rows, spec.ffn)?,
        })
    }
}

impl<B: Backend> Dflash<B> {
    /// Writes K and V of the gathered taps' rows: the same context row feeds every layer, and no
    /// layer norms it again.
    pub(crate) fn write_context(&mut self, places: &[Place<'_>], rows: usize) -> Result<()> {
        let Self { backend, spec, weights, kv, scratch, .. } = self;
        let Scratch { tapped, normed, branch, k, v, .. } = scratch;
        let rope = Rope { head_dim: spec.head_dim, theta: spec.rope_theta };
        backend.linear(tapped, rows, &mut [(&weights.fc, &mut *branch)])?;
        backend.rms_norm(branch, rows, Some(&weights.context_norm), spec.norm_eps, normed)?;
        for (layer, kv) in weights.layers.iter().zip(kv) {
            backend.linear(normed, rows, &mut [(&layer.k, &mut *k), (&layer.v, &mut *v)])?;
            backend.head_norm(k, rows, &layer.k_norm, spec.norm_eps)?;
            backend.rope(k, places, &rope)?;
            backend.write_kv(kv, places, k, v)?;
        }
        Ok(())
    }

    /// Runs the embedded blocks in `x` through all layers. Their K and V go where the rows that
    /// will be kept there overwrite them.
    pub(crate) fn run_blocks(&mut self, places: &[Place<'_>], rows: usize) -> Result<()> {
        for index in 0..self.spec.layers {
            self.attention(index, places, rows)?;
            self.feed_forward(index, rows)?;
        }
        Ok(())
    }

    /// `x += Wo attend(q, k, v)`
    fn attention(&mut self, index: usize, places: &[Place<'_>], rows: usize) -> Result<()> {
        let Self { backend, spec, weights, kv, scratch, .. } = self;
        let (layer, kv): (&Layer<B>, _) = (&weights.layers[index], &mut kv[index]);
        let Scratch { x, normed, branch, q, k, v, mixed, .. } = scratch;
        backend.rms_norm(x, rows, Some(&layer.attn_norm), spec.norm_eps, normed)?;
        let into = &mut [(&layer.q, &mut *q), (&layer.k, &mut *k), (&layer.v, &mut *v)];
        backend.linear(normed, rows, into)?;
        backend.head_norm(q, rows, &layer.q_norm, spec.norm_eps)?;
        backend.head_norm(k, rows, &layer.k_norm, spec.norm_eps)?;
        let rope = Rope { head_dim: spec.head_dim, theta: spec.rope_theta };
        backend.rope(q, places, &rope)?;
        backend.rope(k, places, &rope)?;
        backend.write_kv(kv, places, k, v)?;
        let attention = Attention {
            heads: spec.heads,
            head_dim: spec.head_dim,
            scale: 1.0 / (spec.head_dim as f32).sqrt(),
            mask: Mask::Block { reach: spec.reach },
        };
        backend.attend(q, kv, places, &attention, mixed)?;
        backend.linear(mixed, rows, &mut [(&layer.attn_output, &mut *branch)])?;
        backend.add(x, rows, branch)
    }

    /// `x += Wdown (silu(Wgate h) · Wup h)`
    fn feed_forward(&mut self, index: usize, rows: usize) -> Result<()> {
        let Self { backend, spec, weights, scratch, .. } = self;
        let layer: &Layer<B> = &weights.layers[index];
        let Scratch { x, normed, branch, ffn_gate, up, .. } = scratch;
        backend.rms_norm(x, rows, Some(&layer.ffn_norm), spec.norm_eps, normed)?;
        let into = &mut [(&layer.ffn_gate, &mut *ffn_gate), (&layer.ffn_up, &mut *up)];
        backend.linear(normed, rows, into)?;
        backend.silu_mul(ffn_gate, rows, up)?;
        backend.linear(ffn_gate, rows, &mut [(&layer.ffn_down, &mut *branch)])?;
        backend.add(x, rows, branch)
    }
}
