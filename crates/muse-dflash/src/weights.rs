//! The drafter's tensors on the device.

use muse_core::Result;
use muse_core::contract::{Backend, DrafterSpec, WeightSource};
use muse_core::model::Loader;

/// All tensors but the K/V store.
pub(crate) struct Weights<B: Backend> {
    /// Tapped rows, side by side, to one row.
    pub(crate) fc: B::Weight,
    pub(crate) context_norm: B::Buf,
    pub(crate) layers: Vec<Layer<B>>,
    pub(crate) output_norm: B::Buf,
}

/// One layer. Norm weights are plain factors.
pub(crate) struct Layer<B: Backend> {
    pub(crate) attn_norm: B::Buf,
    pub(crate) q: B::Weight,
    pub(crate) k: B::Weight,
    pub(crate) v: B::Weight,
    pub(crate) q_norm: B::Buf,
    pub(crate) k_norm: B::Buf,
    pub(crate) attn_output: B::Weight,
    pub(crate) ffn_norm: B::Buf,
    pub(crate) ffn_gate: B::Weight,
    pub(crate) ffn_up: B::Weight,
    pub(crate) ffn_down: B::Weight,
}

const TENSORS_A_LAYER: usize = 11;

impl<B: Backend> Weights<B> {
    pub(crate) fn load(
        backend: &B,
        source: &dyn WeightSource,
        spec: &DrafterSpec,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let total = spec.layers * TENSORS_A_LAYER + 3;
        let mut loader = Loader::new(backend, source, total, progress);
        let tapped = spec.target_layers.len() * spec.hidden;
        Ok(Self {
            fc: loader.matrix("fc.weight", spec.hidden, tapped)?,
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
        let (hidden, ffn, head_dim) = (spec.hidden, spec.ffn, spec.head_dim);
        let (query, key) = (spec.heads * head_dim, spec.kv_heads * head_dim);
        Ok(Self {
            attn_norm: loader.vector(&name("attn_norm"), hidden)?,
            q: loader.matrix(&name("attn_q"), query, hidden)?,
            k: loader.matrix(&name("attn_k"), key, hidden)?,
            v: loader.matrix(&name("attn_v"), key, hidden)?,
            q_norm: loader.vector(&name("attn_q_norm"), head_dim)?,
            k_norm: loader.vector(&name("attn_k_norm"), head_dim)?,
            attn_output: loader.matrix(&name("attn_output"), hidden, query)?,
            ffn_norm: loader.vector(&name("ffn_norm"), hidden)?,
            ffn_gate: loader.matrix(&name("ffn_gate"), ffn, hidden)?,
            ffn_up: loader.matrix(&name("ffn_up"), ffn, hidden)?,
            ffn_down: loader.matrix(&name("ffn_down"), hidden, ffn)?,
        })
    }
}
