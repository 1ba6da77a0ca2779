//! The Muse-Glimmer text model over any [`Backend`].
//!
//! Holds weights, the paged K/V store and the buffers of a pass; of a sequence it knows only the
//! places that a pass names.

mod config;
mod forward;
mod load;
mod parts;
mod rounded;
mod weights;

use std::sync::Arc;

pub use config::{ModelOptions, PageBytes, check_kv, page_bytes};
pub use forward::scratch_bytes;
pub use load::Loader;
pub use parts::{FeedForward, HeadShape, Heads};
pub use rounded::{Mix, Rounded};

use crate::contract::{
    Backend, Head, PageCopy, PageGroup, Pages, Place, Span, Target, TextSpec, Token, WeightSource,
};
use crate::{Error, Result};
use forward::Scratch;
use weights::Weights;

/// The text model.
pub struct Model<B: Backend> {
    backend: Arc<B>,
    spec: TextSpec,
    options: ModelOptions,
    weights: Weights<B>,
    /// One store a layer.
    kv: Vec<B::Kv>,
    scratch: Scratch<B>,
    /// `[max_scores, vocab]`
    scores: B::Buf,
    /// `[max_rows, taps · hidden]`
    taps: B::Buf,
    /// Kept between passes for its memory.
    places: Vec<Place<'static>>,
}

impl<B: Backend> Model<B> {
    /// Loads the text model of a checkpoint and allocates all it will ever need. `progress` hears
    /// how many tensors of how many are loaded.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the checkpoint holds no text model or a tap is no layer of it,
    /// [`Error::Corrupt`] when its configuration and its tensors do not fit, and what the backend
    /// says.
    pub fn new(
        backend: Arc<B>,
        source: &dyn WeightSource,
        options: &ModelOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let spec = source.spec().text.clone().ok_or_else(|| {
            Error::Invalid(
                "the checkpoint holds no text model; name a Muse-Glimmer folder or GGUF file, not \
                 its drafter or its vision file"
                    .to_owned(),
            )
        })?;
        config::check(&spec, options)?;
        let weights = Weights::load(&*backend, source, &spec, progress)?;
        let kv = spec.layers.iter().map(|layer| {
            let pages = match config::group(layer) {
                PageGroup::Full => options.full_pages,
                PageGroup::Window => options.window_pages,
            };
            backend.alloc_kv(config::kv_shape(&spec, layer, options.kv, pages))
        });
        let kv = kv.collect::<Result<_>>()?;
        let scratch = Scratch::new(&*backend, &spec, options)?;
        let scores = backend.alloc(options.max_scores, spec.vocab)?;
        let tap_rows = if options.taps.is_empty() { 0 } else { options.max_rows };
        let taps = backend.alloc(tap_rows, options.taps.len() * spec.hidden)?;
        let (options, places) = (options.clone(), Vec::new());
        Ok(Self { backend, spec, options, weights, kv, scratch, scores, taps, places })
    }

    /// The stores of a group's layers.
    fn stores(&self, group: PageGroup) -> impl Iterator<Item = &B::Kv> {
        let layers = self.spec.layers.iter().zip(&self.kv);
        layers.filter(move |(layer, _)| config::group(layer) == group).map(|(_, kv)| kv)
    }

    fn stores_mut(&mut self, group: PageGroup) -> impl Iterator<Item = &mut B::Kv> {
        let layers = self.spec.layers.iter().zip(&mut self.kv);
        layers.filter(move |(layer, _)| config::group(layer) == group).map(|(_, kv)| kv)
    }
}

impl<B: Backend> Target<B> for Model<B> {
    fn spec(&self) -> &TextSpec {
        &self.spec
    }

    fn limits(&self) -> (usize, usize) {
        (self.options.max_rows, self.options.max_scores)
    }

    fn forward(&mut self, batch: &[Span<'_, B>]) -> Result<()> {
        self.run(batch)
    }

    fn scores(&self) -> &B::Buf {
        &self.scores
    }

    fn taps(&self) -> &B::Buf {
        &self.taps
    }
}

impl<B: Backend> Head<B> for Model<B> {
    fn embed(&self, ids: &[Token], out: &mut B::Buf) -> Result<()> {
        self.backend.embed(&self.weights.embed, ids, out, 0)
    }

    fn unembed(&self, hidden: &B::Buf, rows: usize, scores: &mut B::Buf) -> Result<()> {
        self.backend.linear(hidden, rows, &mut [(&self.weights.output, scores)])
    }
}

impl<B: Backend> Pages<B> for Model<B> {
    fn copy_pages(&mut self, copies: &[PageCopy]) -> Result<()> {
        let backend = self.backend.clone();
        for copy in copies {
            for kv in self.stores_mut(copy.group) {
                backend.copy_pages(kv, &[*copy])?;
            }
        }
        Ok(())
    }

    fn save_page(&self, group: PageGroup, page: u32, out: &mut Vec<u8>) -> Result<()> {
        self.stores(group).try_for_each(|kv| self.backend.save_page(kv, page, out))
    }

    fn load_page(&mut self, group: PageGroup, page: u32, bytes: &mut &[u8]) -> Result<()> {
        let backend = self.backend.clone();
        self.stores_mut(group).try_for_each(|kv| backend.load_page(kv, page, bytes))
    }
}
