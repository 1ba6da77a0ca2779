//! The models of an engine, target and drafter, and the bytes behind their KV blocks.

use crate::Result;
use crate::contract::{Backend, BlockCopy, Drafter, KvGroup, PrefixBlock, TargetModel};

/// The target model and its drafter. They share block numbers: the drafter's K and V lie in blocks
/// of the window group.
pub(super) struct Models<B: Backend> {
    pub(super) target: Box<dyn TargetModel<B>>,
    pub(super) drafter: Option<Box<dyn Drafter<B>>>,
}

impl<B: Backend> Models<B> {
    pub(super) fn copy_blocks(&mut self, copies: &[BlockCopy]) -> Result<()> {
        self.target.copy_blocks(copies)?;
        match &mut self.drafter {
            Some(drafter) => drafter.copy_blocks(copies),
            None => Ok(()),
        }
    }

    /// Appends the bytes of a prefix block: the full block, then the window block if it is cached.
    pub(super) fn save(&self, block: PrefixBlock, out: &mut Vec<u8>) -> Result<()> {
        self.target.save_block(KvGroup::Full, block.full, out)?;
        if let Some(window) = block.window {
            self.target.save_block(KvGroup::Window, window, out)?;
            if let Some(drafter) = &self.drafter {
                drafter.save_block(KvGroup::Window, window, out)?;
            }
        }
        Ok(())
    }

    /// Takes what [`Models::save`] wrote for a block with the same parts.
    pub(super) fn load(&mut self, block: PrefixBlock, mut bytes: &[u8]) -> Result<()> {
        self.target.load_block(KvGroup::Full, block.full, &mut bytes)?;
        if let Some(window) = block.window {
            self.target.load_block(KvGroup::Window, window, &mut bytes)?;
            if let Some(drafter) = &mut self.drafter {
                drafter.load_block(KvGroup::Window, window, &mut bytes)?;
            }
        }
        Ok(())
    }
}
