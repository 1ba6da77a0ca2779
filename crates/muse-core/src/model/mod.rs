//! The Muse-Glimmer text model over any [`Backend`].
//!
//! It holds weights, KV blocks and the buffers of a pass. Of sequences it knows only the slices
//! that a pass names.

mod config;
mod forward;
mod load;
mod parts;
mod rounded;
mod weights;

use std::sync::Arc;

pub use config::{ModelFootprint, check_kv};
pub use load::Loader;
pub use parts::{FeedForward, HeadShape, Heads};
pub use rounded::{BfpPolicy, RoundedWeights};

use crate::contract::{
    Backend, BatchEntry, BlockCopy, EmbeddingAndLmHead, KvBlocks, KvGroup, ModelSizes, PassLimits,
    SeqSlice, TargetModel, TextSpec, Token, WeightSource,
};
use crate::{Error, Result};
use forward::Scratch;
use weights::Weights;

/// The text model.
pub struct Model<B: Backend> {
    backend: Arc<B>,
    spec: TextSpec,
    sizes: ModelSizes,
    captured_layers: Vec<usize>,
    weights: Weights<B>,
    /// One KV store per layer.
    kv: Vec<B::Kv>,
    scratch: Scratch<B>,
    /// `[max_logits_rows, vocab]`
    logits: B::Buf,
    /// `[max_num_batched_tokens, captured layers · hidden]`
    captured_hidden: B::Buf,
    /// Kept between passes for its memory: a pass does not allocate.
    slices: Vec<SeqSlice<'static>>,
}

impl<B: Backend> Model<B> {
    /// Loads the text model of a checkpoint and allocates all it will ever need.
    /// `captured_layers` are the layers, from 0, whose output a drafter reads. `progress` is called
    /// with `(loaded, total)` tensors.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the checkpoint holds no text model or lacks a captured layer,
    /// [`Error::Corrupt`] when its configuration and its tensors do not fit, and errors of the
    /// backend.
    pub fn new(
        backend: Arc<B>,
        source: &dyn WeightSource,
        sizes: &ModelSizes,
        captured_layers: &[usize],
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let spec = source.spec().text.clone().ok_or_else(|| {
            Error::Invalid(
                "the checkpoint holds no text model; name a Muse-Glimmer folder or GGUF file, not \
                 its drafter or its vision file"
                    .to_owned(),
            )
        })?;
        config::check(&spec, sizes, captured_layers)?;
        let weights = Weights::load(&*backend, source, &spec, progress)?;
        let kv = spec
            .layers
            .iter()
            .map(|layer| backend.alloc_kv(config::kv_shape(&spec, layer, sizes.kv, sizes.blocks)));
        let kv = kv.collect::<Result<_>>()?;
        let scratch = Scratch::new(&*backend, &spec, sizes)?;
        let logits = backend.alloc(sizes.max_logits_rows, spec.vocab)?;
        let captured_rows =
            if captured_layers.is_empty() { 0 } else { sizes.max_num_batched_tokens };
        let captured_hidden = backend.alloc(captured_rows, captured_layers.len() * spec.hidden)?;
        Ok(Self {
            backend,
            spec,
            sizes: *sizes,
            captured_layers: captured_layers.to_vec(),
            weights,
            kv,
            scratch,
            logits,
            captured_hidden,
            slices: Vec::new(),
        })
    }

    /// The KV stores of the layers of a group.
    fn stores(&self, group: KvGroup) -> impl Iterator<Item = &B::Kv> {
        let layers = self.spec.layers.iter().zip(&self.kv);
        layers.filter(move |(layer, _)| config::group(layer) == group).map(|(_, kv)| kv)
    }

    fn stores_mut(&mut self, group: KvGroup) -> impl Iterator<Item = &mut B::Kv> {
        let layers = self.spec.layers.iter().zip(&mut self.kv);
        layers.filter(move |(layer, _)| config::group(layer) == group).map(|(_, kv)| kv)
    }
}

impl<B: Backend> TargetModel<B> for Model<B> {
    fn spec(&self) -> &TextSpec {
        &self.spec
    }

    fn limits(&self) -> PassLimits {
        let ModelSizes { max_num_batched_tokens, max_logits_rows, .. } = self.sizes;
        PassLimits { max_num_batched_tokens, max_logits_rows }
    }

    fn forward(&mut self, batch: &[BatchEntry<'_, B>]) -> Result<()> {
        self.run(batch)
    }

    fn logits(&self) -> &B::Buf {
        &self.logits
    }

    fn captured_hidden(&self) -> &B::Buf {
        &self.captured_hidden
    }
}

impl<B: Backend> EmbeddingAndLmHead<B> for Model<B> {
    fn embed(&self, ids: &[Token], out: &mut B::Buf) -> Result<()> {
        self.backend.embed(&self.weights.embed, ids, out, 0)
    }

    fn lm_head(&self, hidden: &B::Buf, rows: usize, logits: &mut B::Buf) -> Result<()> {
        self.backend.linear(hidden, rows, &mut [(&self.weights.output, logits)])
    }
}

impl<B: Backend> KvBlocks<B> for Model<B> {
    fn copy_blocks(&mut self, copies: &[BlockCopy]) -> Result<()> {
        let backend = self.backend.clone();
        for copy in copies {
            for kv in self.stores_mut(copy.group) {
                backend.copy_blocks(kv, &[*copy])?;
            }
        }
        Ok(())
    }

    fn save_block(&self, group: KvGroup, block: u32, out: &mut Vec<u8>) -> Result<()> {
        self.stores(group).try_for_each(|kv| self.backend.save_block(kv, block, out))
    }

    fn load_block(&mut self, group: KvGroup, block: u32, bytes: &mut &[u8]) -> Result<()> {
        let backend = self.backend.clone();
        self.stores_mut(group).try_for_each(|kv| backend.load_block(kv, block, bytes))
    }
}
