//! The drafter itself: what it holds, and the contract in terms of its passes.

use std::sync::Arc;

use muse_core::contract::{
    Anchor, Backend, Drafter, DrafterSpec, Guess, Head, Kept, PageCopy, PageGroup, Pages, Place,
    TextSpec, Token, WeightSource, recycle,
};
use muse_core::{Error, Result};

use crate::config::{self, DflashOptions};
use crate::forward::Scratch;
use crate::select::Select;
use crate::weights::Weights;

/// The block-diffusion drafter.
///
/// A block always has all its rows, however few guesses are wanted: its rows see each other, so
/// fewer would be other guesses.
pub struct Dflash<B: Backend> {
    pub(crate) backend: Arc<B>,
    pub(crate) spec: DrafterSpec,
    pub(crate) weights: Weights<B>,
    /// One store a layer.
    pub(crate) kv: Vec<B::Kv>,
    pub(crate) scratch: Scratch<B>,
    pub(crate) select: Select<B>,
    pub(crate) logit_scale: f32,
    pub(crate) logit_cap: Option<f32>,
    options: DflashOptions,
    /// Kept between passes for their memory.
    places: Vec<Place<'static>>,
    ids: Vec<Token>,
    tap_rows: Vec<u32>,
}

impl<B: Backend> Dflash<B> {
    /// Loads the drafter of a checkpoint for a `target` and allocates all it will ever need.
    /// `progress` hears how many tensors of how many are loaded.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the checkpoint holds no drafter or one of another model,
    /// [`Error::Corrupt`] when its configuration and its tensors do not fit, and what the backend
    /// says.
    pub fn new(
        backend: Arc<B>,
        source: &dyn WeightSource,
        target: &TextSpec,
        options: &DflashOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let spec = source.spec().drafter.clone().ok_or_else(|| {
            Error::Invalid(
                "the checkpoint holds no DFlash drafter; name a Muse-Glimmer assistant folder or \
                 a dflash GGUF file"
                    .to_owned(),
            )
        })?;
        config::check(&spec, target, options)?;
        assert!(options.max_anchors > 0 && options.max_rows > 0, "a drafter without rows");
        let weights = Weights::load(&*backend, source, &spec, progress)?;
        let shape = config::kv_shape(&spec, options.kv, options.window_pages);
        let kv = (0..spec.layers).map(|_| backend.alloc_kv(shape)).collect::<Result<_>>()?;
        let guesses = options.max_anchors * (spec.block - 1);
        Ok(Self {
            weights,
            kv,
            scratch: Scratch::new(&*backend, &spec, options)?,
            select: Select::new(&*backend, guesses, target.vocab)?,
            logit_scale: target.logit_scale,
            logit_cap: target.logit_cap,
            options: options.clone(),
            places: Vec::new(),
            ids: Vec::with_capacity(options.max_anchors * spec.block),
            tap_rows: Vec::with_capacity(options.max_rows),
            spec,
            backend,
        })
    }

    /// Gathers the taps of the rows noted so far and writes their context.
    fn flush(&mut self, places: &mut Vec<Place<'_>>, taps: &B::Buf) -> Result<()> {
        let rows = self.tap_rows.len();
        if rows > 0 {
            self.backend.copy(taps, &self.tap_rows, &mut self.scratch.tapped, 0, 0)?;
            self.write_context(places, rows)?;
            self.tap_rows.clear();
            places.clear();
        }
        Ok(())
    }

    /// Guesses for as many anchors as fit in a pass, each wanting at least one.
    fn draft_some(
        &mut self,
        anchors: &[Anchor<'_>],
        head: &dyn Head<B>,
        out: &mut [Vec<Guess>],
    ) -> Result<()> {
        let (block, mask) = (self.spec.block, Token(self.spec.mask_token));
        let mut places: Vec<Place<'_>> = recycle(std::mem::take(&mut self.places));
        self.ids.clear();
        for anchor in anchors {
            places.push(Place { rows: block, ..anchor.place });
            self.ids.push(anchor.token);
            self.ids.resize(places.len() * block, mask);
        }
        head.embed(&self.ids, &mut self.scratch.x)?;
        self.run_blocks(&places, anchors.len() * block)?;
        self.places = recycle(places);
        self.select(anchors, head, out)
    }
}

impl<B: Backend> Drafter<B> for Dflash<B> {
    fn layers(&self) -> &[usize] {
        &self.spec.target_layers
    }

    fn width(&self) -> usize {
        self.spec.block - 1
    }

    fn reach(&self) -> u32 {
        self.spec.reach
    }

    fn absorb(&mut self, kept: &[Kept<'_>], taps: &B::Buf) -> Result<()> {
        let mut places: Vec<Place<'_>> = recycle(std::mem::take(&mut self.places));
        self.tap_rows.clear();
        for Kept { place, first_row } in kept {
            // Rows whose page has already left the window are out of every later block's reach.
            let mut skip = place.pages.window_base.saturating_sub(place.start) as usize;
            while skip < place.rows {
                if self.tap_rows.len() == self.options.max_rows {
                    self.flush(&mut places, taps)?;
                }
                let rows = (self.options.max_rows - self.tap_rows.len()).min(place.rows - skip);
                places.push(Place { start: place.start + skip as u32, rows, pages: place.pages });
                let first = (first_row + skip) as u32;
                self.tap_rows.extend(first..first + rows as u32);
                skip += rows;
            }
        }
        self.flush(&mut places, taps)?;
        self.places = recycle(places);
        Ok(())
    }

    fn draft(
        &mut self,
        anchors: &[Anchor<'_>],
        head: &dyn Head<B>,
        out: &mut [Vec<Guess>],
    ) -> Result<()> {
        assert_eq!(anchors.len(), out.len(), "a list of guesses for every anchor");
        out.iter_mut().for_each(Vec::clear);
        let turns = anchors.chunks(self.options.max_anchors);
        for (anchors, out) in turns.zip(out.chunks_mut(self.options.max_anchors)) {
            if anchors.iter().any(|anchor| anchor.max > 0) {
                self.draft_some(anchors, head, out)?;
            }
        }
        Ok(())
    }
}

impl<B: Backend> Pages<B> for Dflash<B> {
    fn copy_pages(&mut self, copies: &[PageCopy]) -> Result<()> {
        for copy in copies.iter().filter(|copy| copy.group == PageGroup::Window) {
            for kv in &mut self.kv {
                self.backend.copy_pages(kv, &[*copy])?;
            }
        }
        Ok(())
    }

    fn save_page(&self, group: PageGroup, page: u32, out: &mut Vec<u8>) -> Result<()> {
        if group == PageGroup::Window {
            self.kv.iter().try_for_each(|kv| self.backend.save_page(kv, page, out))?;
        }
        Ok(())
    }

    fn load_page(&mut self, group: PageGroup, page: u32, bytes: &mut &[u8]) -> Result<()> {
        if group == PageGroup::Window {
            self.kv.iter_mut().try_for_each(|kv| self.backend.load_page(kv, page, bytes))?;
        }
        Ok(())
    }
}
