//! The drafter: what it holds, and the contract in terms of its passes.

use std::sync::Arc;

use muse_core::contract::{
    Anchor, Backend, BlockCopy, ContextSlice, DraftToken, Drafter, EmbeddingAndLmHead, KvBlocks,
    KvGroup, ModelSizes, SeqSlice, TextSpec, Token, WeightSource, recycle,
};
use muse_core::{Error, Result};

use crate::config;
use crate::forward::{Network, Scratch};
use crate::select::Select;
use crate::weights::Weights;

/// The block-diffusion drafter.
///
/// A draft block always has its full length, however few draft tokens are requested: its positions
/// attend to each other, so a shorter block would give other draft tokens.
pub struct Dflash<B: Backend> {
    network: Network<B>,
    select: Select<B>,
    sizes: ModelSizes,
    /// Kept between passes for their memory.
    slices: Vec<SeqSlice<'static>>,
    ids: Vec<Token>,
    /// Rows of the captured hidden states to append next.
    context_rows: Vec<u32>,
}

impl<B: Backend> Dflash<B> {
    /// Loads the drafter of a checkpoint for a `target` and allocates all it will ever need.
    /// `progress` is called with `(loaded, total)` tensors.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the checkpoint holds no drafter or one of another model,
    /// [`Error::Corrupt`] when its configuration and its tensors do not fit, and errors of the
    /// backend.
    pub fn new(
        backend: Arc<B>,
        source: &dyn WeightSource,
        target: &TextSpec,
        sizes: &ModelSizes,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let spec = source.spec().drafter.clone().ok_or_else(|| {
            Error::Invalid(
                "the checkpoint holds no DFlash drafter; name a Muse-Glimmer assistant folder or \
                 a dflash GGUF file"
                    .to_owned(),
            )
        })?;
        config::check(&spec, target, sizes)?;
        assert!(
            sizes.max_num_seqs > 0 && sizes.max_num_batched_tokens > 0,
            "a drafter for no sequences or no tokens"
        );
        let weights = Weights::load(&*backend, source, &spec, progress)?;
        let shape = config::kv_shape(&spec, sizes.kv, sizes.blocks.window);
        let kv = (0..spec.layers).map(|_| backend.alloc_kv(shape)).collect::<Result<_>>()?;
        let drafts = sizes.max_num_seqs * (spec.draft_block - 1);
        let scratch = Scratch::new(&*backend, &spec, sizes)?;
        Ok(Self {
            select: Select::new(&*backend, drafts, target)?,
            sizes: *sizes,
            slices: Vec::with_capacity(sizes.max_num_batched_tokens),
            ids: Vec::with_capacity(sizes.max_num_seqs * spec.draft_block),
            context_rows: Vec::with_capacity(sizes.max_num_batched_tokens),
            network: Network { backend, spec, weights, kv, scratch },
        })
    }

    /// Gathers the captured hidden states of `context_rows` and writes their K and V.
    fn flush(&mut self, slices: &mut Vec<SeqSlice<'_>>, captured_hidden: &B::Buf) -> Result<()> {
        let rows = self.context_rows.len();
        if rows > 0 {
            let Network { backend, scratch, .. } = &mut self.network;
            backend.copy(captured_hidden, &self.context_rows, &mut scratch.captured, 0, 0)?;
            self.network.write_context(slices, rows)?;
            self.context_rows.clear();
            slices.clear();
        }
        Ok(())
    }

    /// Drafts for as many anchors as fit into a pass.
    fn draft_some(
        &mut self,
        anchors: &[Anchor<'_>],
        head: &dyn EmbeddingAndLmHead<B>,
        out: &mut [Vec<DraftToken>],
    ) -> Result<()> {
        let (block, mask) = (self.network.spec.draft_block, Token(self.network.spec.mask_token));
        let mut slices: Vec<SeqSlice<'_>> = recycle(std::mem::take(&mut self.slices));
        self.ids.clear();
        for anchor in anchors {
            slices.push(SeqSlice { len: block, ..anchor.slice });
            self.ids.push(anchor.token);
            self.ids.resize(slices.len() * block, mask);
        }
        head.embed(&self.ids, &mut self.network.scratch.x)?;
        self.network.run_blocks(&slices, anchors.len() * block)?;
        self.slices = recycle(slices);
        self.select.run(&mut self.network, anchors, head, out)
    }
}

impl<B: Backend> Drafter<B> for Dflash<B> {
    fn captured_layers(&self) -> &[usize] {
        &self.network.spec.target_layers
    }

    fn captured_width(&self) -> usize {
        let spec = &self.network.spec;
        spec.target_layers.len() * spec.hidden
    }

    fn width(&self) -> usize {
        self.network.spec.draft_block - 1
    }

    fn window_reach(&self) -> u32 {
        self.network.spec.reach
    }

    fn append_context(
        &mut self,
        context: &[ContextSlice<'_>],
        captured_hidden: &B::Buf,
    ) -> Result<()> {
        let mut slices: Vec<SeqSlice<'_>> = recycle(std::mem::take(&mut self.slices));
        self.context_rows.clear();
        for ContextSlice { slice, first_row } in context {
            // Positions whose KV block has left the window are out of reach of all later blocks.
            let mut skip = slice.blocks.window_base.saturating_sub(slice.start) as usize;
            while skip < slice.len {
                if self.context_rows.len() == self.sizes.max_num_batched_tokens {
                    self.flush(&mut slices, captured_hidden)?;
                }
                let rows = (self.sizes.max_num_batched_tokens - self.context_rows.len())
                    .min(slice.len - skip);
                slices.push(SeqSlice {
                    start: slice.start + skip as u32,
                    len: rows,
                    blocks: slice.blocks,
                });
                let first = (first_row + skip) as u32;
                self.context_rows.extend(first..first + rows as u32);
                skip += rows;
            }
        }
        self.flush(&mut slices, captured_hidden)?;
        self.slices = recycle(slices);
        Ok(())
    }

    fn draft(
        &mut self,
        anchors: &[Anchor<'_>],
        head: &dyn EmbeddingAndLmHead<B>,
        out: &mut [Vec<DraftToken>],
    ) -> Result<()> {
        assert_eq!(anchors.len(), out.len(), "a list of draft tokens for every anchor");
        out.iter_mut().for_each(Vec::clear);
        let passes = anchors.chunks(self.sizes.max_num_seqs);
        for (anchors, out) in passes.zip(out.chunks_mut(self.sizes.max_num_seqs)) {
            if anchors.iter().any(|anchor| anchor.max > 0) {
                self.draft_some(anchors, head, out)?;
            }
        }
        Ok(())
    }
}

impl<B: Backend> KvBlocks<B> for Dflash<B> {
    fn copy_blocks(&mut self, copies: &[BlockCopy]) -> Result<()> {
        for copy in copies.iter().filter(|copy| copy.group == KvGroup::Window) {
            for kv in &mut self.network.kv {
                self.network.backend.copy_blocks(kv, &[*copy])?;
            }
        }
        Ok(())
    }

    fn save_block(&self, group: KvGroup, block: u32, out: &mut Vec<u8>) -> Result<()> {
        if group == KvGroup::Window {
            self.network
                .kv
                .iter()
                .try_for_each(|kv| self.network.backend.save_block(kv, block, out))?;
        }
        Ok(())
    }

    fn load_block(&mut self, group: KvGroup, block: u32, bytes: &mut &[u8]) -> Result<()> {
        if group == KvGroup::Window {
            let Network { backend, kv, .. } = &mut self.network;
            kv.iter_mut().try_for_each(|kv| backend.load_block(kv, block, bytes))?;
        }
        Ok(())
    }
}
