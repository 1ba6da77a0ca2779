//! KV offload: evicted KV blocks are stored, and loaded again for a prompt with the same prefix, a
//! bounded number per step so that running sequences are not held up.

use std::sync::Arc;

use super::models::Models;
use crate::Result;
use crate::contract::{
    Backend, BlockCopy, KvOffloadStore, KvPool, PositionKey, PrefixBlock, PrefixHash,
};

/// The store, and buffers that are kept between steps.
pub(super) struct Offloader {
    store: Arc<dyn KvOffloadStore>,
    blocks: Vec<PrefixBlock>,
    bytes: Vec<u8>,
    loaded: Vec<u8>,
    /// Bytes of a stored prefix block without its window block, and with it.
    sizes: Option<(usize, usize)>,
}

impl Offloader {
    pub(super) fn new(store: Arc<dyn KvOffloadStore>) -> Self {
        Self { store, blocks: Vec::new(), bytes: Vec::new(), loaded: Vec::new(), sizes: None }
    }

    /// Stores the blocks that were evicted, before anything overwrites them.
    pub(super) fn save_evicted<B: Backend>(
        &mut self,
        pool: &mut dyn KvPool,
        models: &Models<B>,
    ) -> Result<()> {
        let Some(pool) = pool.offload() else { return Ok(()) };
        pool.evicted(&mut self.blocks);
        self.save(models, false)
    }

    /// Stores every block that a later prompt could reuse. For the end of an engine.
    pub(super) fn save_all<B: Backend>(
        &mut self,
        pool: &mut dyn KvPool,
        models: &Models<B>,
    ) -> Result<()> {
        self.store.flush();
        self.save_evicted(pool, models)?;
        self.store.flush();
        let Some(pool) = pool.offload() else { return Ok(()) };
        pool.cached(&mut self.blocks);
        self.save(models, true)
    }

    /// Stores `blocks` and empties the list. `flush` waits for each block, so that none is dropped.
    fn save<B: Backend>(&mut self, models: &Models<B>, flush: bool) -> Result<()> {
        for block in self.blocks.drain(..) {
            self.bytes.clear();
            models.save(block, &mut self.bytes)?;
            self.store.put(block.hash, &self.bytes);
            if flush {
                self.store.flush();
            }
        }
        Ok(())
    }

    /// Loads up to `max` stored blocks that continue the cached prefix of the prompt `keys`.
    /// Returns whether all of them were found, so that more may be stored.
    pub(super) fn restore<B: Backend>(
        &mut self,
        pool: &mut dyn KvPool,
        models: &mut Models<B>,
        copies: &mut Vec<BlockCopy>,
        keys: &[PositionKey],
        max: usize,
    ) -> Result<bool> {
        let (full, full_and_window) = self.sizes(models)?;
        for _ in 0..max {
            self.save_evicted(pool, models)?;
            let Some(offload) = pool.offload() else { return Ok(false) };
            let Some((hash, _)) = offload.missing(keys) else { return Ok(false) };
            if !self.store.get(hash, &mut self.loaded) {
                return Ok(false);
            }
            let has_window = self.loaded.len() == full_and_window;
            // Bytes of another size are of another model, whatever hash they were stored under.
            if !has_window && self.loaded.len() != full {
                return Ok(false);
            }
            let Some(block) = offload.allocate_missing(keys, has_window) else { return Ok(false) };
            // Blocks that were evicted for this one are stored, and pending copies that read from
            // them are made, before its bytes overwrite theirs.
            self.save_evicted(pool, models)?;
            models.copy_blocks(copies)?;
            copies.clear();
            models.load(block, &self.loaded)?;
        }
        Ok(true)
    }

    /// Bytes of a stored prefix block without its window block, and with it.
    fn sizes<B: Backend>(&mut self, models: &Models<B>) -> Result<(usize, usize)> {
        if let Some(sizes) = self.sizes {
            return Ok(sizes);
        }
        let block = PrefixBlock { hash: PrefixHash::default(), full: 0, window: None };
        let mut bytes = Vec::new();
        models.save(block, &mut bytes)?;
        let full = bytes.len();
        bytes.clear();
        models.save(PrefixBlock { window: Some(0), ..block }, &mut bytes)?;
        Ok(*self.sizes.insert((full, bytes.len())))
    }
}
