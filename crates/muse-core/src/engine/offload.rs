//! KV blocks that make way are saved, and loaded again when a prompt begins alike: some in a step, so
//! that those who run are not kept waiting.

use std::sync::Arc;

use super::step::EngineCore;
use crate::Result;
use crate::contract::{Backend, KvGroup, KvOffloadStore, PositionKey, PrefixBlock};

/// Where KV blocks are kept, and memory for them on the way.
pub(super) struct OffloadState {
    kv_offload: Arc<dyn KvOffloadStore>,
    blocks: Vec<PrefixBlock>,
    bytes: Vec<u8>,
    /// Bytes of a KV block of the full group and of both holders' KV blocks of the window group.
    sizes: Option<[usize; 2]>,
}

impl OffloadState {
    pub(super) fn new(kv_offload: Arc<dyn KvOffloadStore>) -> Self {
        Self { kv_offload, blocks: Vec::new(), bytes: Vec::new(), sizes: None }
    }
}

impl<B: Backend> EngineCore<B> {
    /// Saves what was evicted, before anything is written over it.
    pub(super) fn save_evicted(&mut self) -> Result<()> {
        let (Some(offload), Some(pool)) = (&mut self.offload, self.pool.offload()) else {
            return Ok(());
        };
        let mut blocks = std::mem::take(&mut offload.blocks);
        pool.evicted(&mut blocks);
        for block in &blocks {
            self.save(*block)?;
        }
        self.give_back(blocks);
        Ok(())
    }

    /// Saves all KV blocks that could be asked for again, when nothing is to run any more.
    ///
    /// # Errors
    /// When the device fails.
    pub fn save_kept(&mut self) -> Result<()> {
        self.flush();
        self.save_evicted()?;
        self.flush();
        let (Some(offload), Some(pool)) = (&mut self.offload, self.pool.offload()) else {
            return Ok(());
        };
        let mut blocks = std::mem::take(&mut offload.blocks);
        pool.cached(&mut blocks);
        for block in &blocks {
            self.save(*block)?;
            self.flush();
        }
        self.give_back(blocks);
        Ok(())
    }

    /// Waits for what is being written: nobody else waits any more, and no KV block is to be lost.
    fn flush(&self) {
        if let Some(offload) = &self.offload {
            offload.kv_offload.flush();
        }
    }

    fn give_back(&mut self, mut blocks: Vec<PrefixBlock>) {
        blocks.clear();
        if let Some(offload) = &mut self.offload {
            offload.blocks = blocks;
        }
    }

    fn save(&mut self, block: PrefixBlock) -> Result<()> {
        let Some(OffloadState { kv_offload, bytes, .. }) = &mut self.offload else { return Ok(()) };
        bytes.clear();
        self.target.save_block(KvGroup::Full, block.full, bytes)?;
        if let Some(window) = block.window {
            self.target.save_block(KvGroup::Window, window, bytes)?;
            if let Some(drafter) = &self.drafter {
                drafter.save_block(KvGroup::Window, window, bytes)?;
            }
        }
        kv_offload.put(block.hash, bytes);
        Ok(())
    }

    /// Loads KV blocks that follow the cached ones of the prompt in `keys`, as far as they were kept:
    /// `some` of `left`, which is what may still be loaded for it. Returns what is left then.
    pub(super) fn restore(&mut self, left: usize, some: usize) -> Result<usize> {
        if self.offload.is_none() {
            return Ok(0);
        }
        let keys = std::mem::take(&mut self.keys);
        let outcome = self.restore_blocks(&keys, left, some);
        self.keys = keys;
        outcome
    }

    fn restore_blocks(&mut self, keys: &[PositionKey], left: usize, some: usize) -> Result<usize> {
        let [full, window] = self.block_sizes()?;
        for _ in 0..some {
            self.save_evicted()?;
            let (Some(offload), Some(pool)) = (&mut self.offload, self.pool.offload()) else {
                return Ok(0);
            };
            let Some((name, _)) = pool.missing(keys) else { return Ok(0) };
            if !offload.kv_offload.get(name, &mut offload.bytes) {
                return Ok(0);
            }
            let has_window = offload.bytes.len() == full + window;
            // KV blocks of another size are of another model, whatever their name.
            if !has_window && offload.bytes.len() != full {
                return Ok(0);
            }
            let bytes = std::mem::take(&mut offload.bytes);
            let Some(block) = pool.adopt(keys, has_window) else { return Ok(0) };
            // What made way for it is saved, and what is to be copied from there copied, before its
            // bytes come in.
            self.save_evicted()?;
            self.copy_blocks()?;
            self.load_block(block, &bytes)?;
            if let Some(offload) = &mut self.offload {
                offload.bytes = bytes;
            }
        }
        Ok(left - some)
    }

    fn load_block(&mut self, block: PrefixBlock, mut bytes: &[u8]) -> Result<()> {
        self.target.load_block(KvGroup::Full, block.full, &mut bytes)?;
        if let Some(window) = block.window {
            self.target.load_block(KvGroup::Window, window, &mut bytes)?;
            if let Some(drafter) = &mut self.drafter {
                drafter.load_block(KvGroup::Window, window, &mut bytes)?;
            }
        }
        Ok(())
    }

    fn block_sizes(&mut self) -> Result<[usize; 2]> {
        if let Some(sizes) = self.offload.as_ref().and_then(|offload| offload.sizes) {
            return Ok(sizes);
        }
        let mut bytes = Vec::new();
        self.target.save_block(KvGroup::Full, 0, &mut bytes)?;
        let full = bytes.len();
        self.target.save_block(KvGroup::Window, 0, &mut bytes)?;
        if let Some(drafter) = &self.drafter {
            drafter.save_block(KvGroup::Window, 0, &mut bytes)?;
        }
        let sizes = [full, bytes.len() - full];
        if let Some(offload) = &mut self.offload {
            offload.sizes = Some(sizes);
        }
        Ok(sizes)
    }
}
