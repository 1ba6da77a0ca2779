//! The text model's tensors on the device.

use super::load::Loader;
use super::parts::{FeedForward, HeadShape, Heads};
use crate::Result;
use crate::contract::{Backend, TextSpec, WeightSource};

/// All tensors of the text model.
pub(super) struct Weights<B: Backend> {
    pub(super) embed: B::Weight,
    pub(super) layers: Vec<Layer<B>>,
    pub(super) output_norm: B::Buf,
    pub(super) output: B::Weight,
}

/// One layer. Norm weights are the factors themselves, not their difference from 1.
pub(super) struct Layer<B: Backend> {
    pub(super) attn_norm: B::Buf,
    /// The norm of q holds the factor 3.87, as [`WeightSource`] gives it.
    pub(super) heads: Heads<B>,
    pub(super) gate: B::Weight,
    pub(super) post_attn_norm: B::Buf,
    pub(super) ffn_norm: B::Buf,
    pub(super) ffn: FeedForward<B>,
    pub(super) post_ffn_norm: B::Buf,
}

impl<B: Backend> Weights<B> {
    pub(super) fn load(
        backend: &B,
        source: &dyn WeightSource,
        spec: &TextSpec,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let tensors_per_layer = Heads::<B>::TENSORS + FeedForward::<B>::TENSORS + 5;
        let total = spec.layers.len() * tensors_per_layer + 3;
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
        let (hidden, shape) = (spec.hidden, head_shape(spec, index));
        Ok(Self {
            attn_norm: loader.vector(&name("attn_norm"), hidden)?,
            heads: Heads::load(loader, index, hidden, &shape)?,
            gate: loader.matrix(&name("attn_gate"), spec.heads * spec.head_dim, hidden)?,
            post_attn_norm: loader.vector(&name("post_attention_norm"), hidden)?,
            ffn_norm: loader.vector(&name("ffn_norm"), hidden)?,
            ffn: FeedForward::load(loader, index, hidden, spec.ffn)?,
            post_ffn_norm: loader.vector(&name("post_ffw_norm"), hidden)?,
        })
    }
}

/// Geometry of a layer's heads.
pub(super) fn head_shape(spec: &TextSpec, index: usize) -> HeadShape {
    let TextSpec { heads, kv_heads, head_dim, norm_eps, rope_theta, .. } = *spec;
    let rope_theta = spec.layers[index].rope.then_some(rope_theta);
    HeadShape { heads, kv_heads, head_dim, norm_eps, rope_theta }
}
