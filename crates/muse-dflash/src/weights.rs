//! The drafter's tensors on the device.

use muse_core::Result;
use muse_core::contract::{Backend, DrafterSpec, WeightSource};
use muse_core::model::{FeedForward, HeadShape, Heads, Loader};

/// All tensors of the drafter.
pub(crate) struct Weights<B: Backend> {
    /// Captured hidden states, side by side, to one hidden state.
    pub(crate) fc: B::Weight,
    pub(crate) context_norm: B::Buf,
    pub(crate) layers: Vec<Layer<B>>,
    pub(crate) output_norm: B::Buf,
}

/// One layer. Norm weights are plain factors.
pub(crate) struct Layer<B: Backend> {
    pub(crate) attn_norm: B::Buf,
    pub(crate) heads: Heads<B>,
    pub(crate) ffn_norm: B::Buf,
    pub(crate) ffn: FeedForward<B>,
}

impl<B: Backend> Weights<B> {
    pub(crate) fn load(
        backend: &B,
        source: &dyn WeightSource,
        spec: &DrafterSpec,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let tensors_per_layer = Heads::<B>::TENSORS + FeedForward::<B>::TENSORS + 2;
        let total = spec.layers * tensors_per_layer + 3;
        let mut loader = Loader::new(backend, source, total, progress);
        let captured = spec.target_layers.len() * spec.hidden;
        Ok(Self {
            fc: loader.matrix("fc.weight", spec.hidden, captured)?,
            context_norm: loader.vector("enc.output_norm.weight", spec.hidden)?,
            layers: (0..spec.layers)
                .map(|index| Layer::load(&mut loader, spec, index))
                .collect::<Result<_>>()?,
            output_norm: loader.vector("output_norm.weight", spec.hidden)?,
        })
    }
}

impl<B: Backend> Layer<B> {
    fn load(loader: &mut Loader<'_, B>, spec: &DrafterSpec, index: usize) -> Result<Self> {
        let name = |part: &str| format!("blk.{index}.{part}.weight");
        let (hidden, shape) = (spec.hidden, head_shape(spec));
        Ok(Self {
            attn_norm: loader.vector(&name("attn_norm"), hidden)?,
            heads: Heads::load(loader, index, hidden, &shape)?,
            ffn_norm: loader.vector(&name("ffn_norm"), hidden)?,
            ffn: FeedForward::load(loader, index, hidden, spec.ffn)?,
        })
    }
}

/// Geometry of the heads; all layers rotate.
pub(crate) fn head_shape(spec: &DrafterSpec) -> HeadShape {
    let DrafterSpec { heads, kv_heads, head_dim, norm_eps, rope_theta, .. } = *spec;
    HeadShape { heads, kv_heads, head_dim, norm_eps, rope_theta: Some(rope_theta) }
}
