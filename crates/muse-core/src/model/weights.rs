//! The text model's tensors on the device.

use super::load::Loader;
use crate::Result;
use crate::contract::{Backend, TextSpec, WeightSource};

/// All tensors but the K/V store.
pub(super) struct Weights<B: Backend> {
    pub(super) embed: B::Weight,
    pub(super) layers: Vec<Layer<B>>,
    pub(super) output_norm: B::Buf,
    pub(super) output: B::Weight,
}

/// One layer. Norm vectors are the factors themselves.
pub(super) struct Layer<B: Backend> {
    pub(super) attn_norm: B::Buf,
    pub(super) q: B::Weight,
    pub(super) k: B::Weight,
    pub(super) v: B::Weight,
    pub(super) gate: B::Weight,
    /// Holds the factor 3.87 on q.
    pub(super) q_norm: B::Buf,
    pub(super) k_norm: B::Buf,
    pub(super) attn_output: B::Weight,
    pub(super) post_attn_norm: B::Buf,
    pub(super) ffn_norm: B::Buf,
    pub(super) ffn_gate: B::Weight,
    pub(super) ffn_up: B::Weight,
    pub(super) ffn_down: B::Weight,
    pub(super) post_ffn_norm: B::Buf,
}

const TENSORS_A_LAYER: usize = 14;

impl<B: Backend> Weights<B> {
    pub(super) fn load(
        backend: &B,
        source: &dyn WeightSource,
        spec: &TextSpec,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let total = spec.layers.len() * TENSORS_A_LAYER + 3;
        let mut loader = Loader::new(backend, source, total, progress);
        Ok(Self {
            embed: loader.matrix("token_embd.weight", spec.vocab, spec.hidden)?,
            layers: (0..spec.layers.len())
                .map(|i| Layer::load(&mut loader, spec, i))
                .collect::<Result<_>>()?,
            output_norm: loader.vector("output_norm.weight", spec.hidden)?,
            output: loader.matrix("output.weight", spec.vocab, spec.hidden)?,
        })
    }
}

impl<B: Backend> Layer<B> {
    fn load(loader: &mut Loader<'_, B>, spec: &TextSpec, index: usize) -> Result<Self> {
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let (hidden, ffn, head_dim) = (spec.hidden, spec.ffn, spec.head_dim);
        let (query, key) = (spec.heads * head_dim, spec.kv_heads * head_dim);
        Ok(Self {
            attn_norm: loader.vector(&name("attn_norm"), hidden)?,
            q: loader.matrix(&name("attn_q"), query, hidden)?,
            k: loader.matrix(&name("attn_k"), key, hidden)?,
            v: loader.matrix(&name("attn_v"), key, hidden)?,
            gate: loader.matrix(&name("attn_gate"), query, hidden)?,
            q_norm: loader.vector(&name("attn_q_norm"), head_dim)?,
            k_norm: loader.vector(&name("attn_k_norm"), head_dim)?,
            attn_output: loader.matrix(&name("attn_output"), hidden, query)?,
            post_attn_norm: loader.vector(&name("post_attention_norm"), hidden)?,
            ffn_norm: loader.vector(&name("ffn_norm"), hidden)?,
            ffn_gate: loader.matrix(&name("ffn_gate"), ffn, hidden)?,
            ffn_up: loader.matrix(&name("ffn_up"), ffn, hidden)?,
            ffn_down: loader.matrix(&name("ffn_down"), hidden, ffn)?,
            post_ffn_norm: loader.vector(&name("post_ffw_norm"), hidden)?,
        })
    }
}
