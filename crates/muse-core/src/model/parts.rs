//! Parts of a layer that the text model and its drafters share.

use super::load::Loader;
use crate::Result;
use crate::contract::{Attention, Backend, Mask, Rope, SeqSlice};

/// Projections and norms of an attention.
pub struct Heads<B: Backend> {
    /// `[heads · head_dim, hidden]`
    pub q: B::Weight,
    /// `[kv_heads · head_dim, hidden]`, as is `v`.
    pub k: B::Weight,
    /// See `k`.
    pub v: B::Weight,
    /// Weight of the norm of each head of q. `[1, head_dim]`
    pub q_norm: B::Buf,
    /// Weight of the norm of each head of k. `[1, head_dim]`
    pub k_norm: B::Buf,
    /// `[hidden, heads · head_dim]`
    pub output: B::Weight,
}

/// Geometry of the heads of a layer.
#[derive(Clone, Copy, Debug)]
pub struct HeadShape {
    /// Query heads.
    pub heads: usize,
    /// K/V heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Of the norms of q and k.
    pub norm_eps: f32,
    /// Base of the rotary frequencies; none leaves q and k as they are.
    pub rope_theta: Option<f32>,
}

impl HeadShape {
    /// How q and k are rotated.
    pub fn rope(&self) -> Option<Rope> {
        self.rope_theta.map(|theta| Rope { head_dim: self.head_dim, theta })
    }
}

impl<B: Backend> Heads<B> {
    /// Number of tensors.
    pub const TENSORS: usize = 6;

    /// Loads the tensors of a layer.
    pub fn load(
        loader: &mut Loader<'_, B>,
        layer: usize,
        hidden: usize,
        shape: &HeadShape,
    ) -> Result<Self> {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let HeadShape { heads, kv_heads, head_dim, .. } = *shape;
        let (query, key) = (heads * head_dim, kv_heads * head_dim);
        Ok(Self {
            q: loader.matrix(&name("attn_q"), query, hidden)?,
            k: loader.matrix(&name("attn_k"), key, hidden)?,
            v: loader.matrix(&name("attn_v"), key, hidden)?,
            q_norm: loader.vector(&name("attn_q_norm"), head_dim)?,
            k_norm: loader.vector(&name("attn_k_norm"), head_dim)?,
            output: loader.matrix(&name("attn_output"), hidden, query)?,
        })
    }

    /// Attention over projected q, k and v: norms and rotates q and k in place, stores k and v at
    /// their positions, and writes the attention's output, `[rows, heads · head_dim]`, to `out`.
    pub fn attend(
        &self,
        backend: &B,
        shape: &HeadShape,
        mask: Mask,
        slices: &[SeqSlice<'_>],
        [q, k, v, out]: [&mut B::Buf; 4],
        kv: &mut B::Kv,
    ) -> Result<()> {
        let rows = SeqSlice::total_len(slices);
        backend.head_norm(q, rows, &self.q_norm, shape.norm_eps)?;
        backend.head_norm(k, rows, &self.k_norm, shape.norm_eps)?;
        if let Some(rope) = shape.rope() {
            backend.rope(q, slices, &rope)?;
            backend.rope(k, slices, &rope)?;
        }
        backend.write_kv(kv, slices, k, v)?;
        let HeadShape { heads, head_dim, .. } = *shape;
        let scale = 1.0 / (head_dim as f32).sqrt();
        backend.attend(q, kv, slices, &Attention { heads, head_dim, scale, mask }, out)
    }
}

/// A gated feed-forward network.
pub struct FeedForward<B: Backend> {
    /// `[ffn, hidden]`, as is `up`.
    gate: B::Weight,
    up: B::Weight,
    /// `[hidden, ffn]`
    down: B::Weight,
}

impl<B: Backend> FeedForward<B> {
    /// Number of tensors.
    pub const TENSORS: usize = 3;

    /// Loads the tensors of a layer.
    pub fn load(
        loader: &mut Loader<'_, B>,
        layer: usize,
        hidden: usize,
        ffn: usize,
    ) -> Result<Self> {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        Ok(Self {
            gate: loader.matrix(&name("ffn_gate"), ffn, hidden)?,
            up: loader.matrix(&name("ffn_up"), ffn, hidden)?,
            down: loader.matrix(&name("ffn_down"), hidden, ffn)?,
        })
    }

    /// `out = Wdown (silu(Wgate x) · Wup x)`; `gate` and `up`, `[rows, ffn]`, are scratch.
    pub fn run(
        &self,
        backend: &B,
        x: &B::Buf,
        rows: usize,
        [gate, up]: [&mut B::Buf; 2],
        out: &mut B::Buf,
    ) -> Result<()> {
        backend.linear(x, rows, &mut [(&self.gate, &mut *gate), (&self.up, &mut *up)])?;
        backend.silu_mul(gate, rows, up)?;
        backend.linear(gate, rows, &mut [(&self.down, out)])
    }
}
