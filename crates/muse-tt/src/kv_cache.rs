//! The KV cache of a layer on the device, and where the tokens of a batch lie in it.

use std::ops::Range;

use muse_core::Result;
use muse_core::contract::{KV_BLOCK_SIZE, KvGroup, KvShape, KvType, SeqSlice};
use muse_core::quant::tile::{SIDE, TileFormat};

use crate::device::Device;
use crate::matrix::Matrix;

/// K and V of a layer, each `[blocks, kv_heads, 64, head_dim]` in BF16 tiles: as a matrix, the
/// heads of all KV blocks are stacked, 64 rows each.
pub struct KvCache {
    pub(crate) k: Matrix,
    pub(crate) v: Matrix,
    shape: KvShape,
}

impl KvCache {
    /// A cache of zeros: positions that were never written are read as well and must be finite.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when the device has not enough memory.
    pub fn new(device: &Device, shape: KvShape) -> Result<Self> {
        assert_eq!(shape.kind, KvType::Bf16, "the device keeps K and V in BF16");
        assert!(shape.head_dim.is_multiple_of(SIDE), "heads of {} in tiles", shape.head_dim);
        let rows = shape.blocks * shape.kv_heads * KV_BLOCK_SIZE;
        let zeroed = || -> Result<Matrix> {
            let matrix = Matrix::new(device, TileFormat::Bf16, rows, shape.head_dim)?;
            matrix.buffer.write(&vec![0; matrix.bytes() as usize])?;
            Ok(matrix)
        };
        Ok(Self { k: zeroed()?, v: zeroed()?, shape })
    }

    /// Replaces all of K and all of V, each `[blocks, kv_heads, 64, head_dim]`.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn write(&mut self, k: &[f32], v: &[f32]) -> Result<()> {
        self.k.write(k)?;
        self.v.write(v)
    }

    /// All of K and all of V.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn read(&self) -> Result<(Vec<f32>, Vec<f32>)> {
        Ok((self.k.read()?, self.v.read()?))
    }

    /// Bytes of a KV block, K and V together.
    pub fn block_bytes(&self) -> usize {
        self.shape.block_bytes()
    }

    /// Appends a KV block to `out`, K then V, as tiles.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn save(&self, block: u32, out: &mut Vec<u8>) -> Result<()> {
        let half = self.block_bytes() / 2;
        for matrix in [&self.k, &self.v] {
            let before = out.len();
            out.resize(before + half, 0);
            matrix.buffer.read_at(self.first_byte(block), &mut out[before..])?;
        }
        Ok(())
    }

    /// Replaces a KV block by what [`Self::save`] wrote.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn load(&mut self, block: u32, saved: &[u8]) -> Result<()> {
        let (k, v) = saved.split_at(self.block_bytes() / 2);
        self.k.buffer.write_at(self.first_byte(block), k)?;
        self.v.buffer.write_at(self.first_byte(block), v)
    }

    /// Byte offset of a KV block in K and in V.
    fn first_byte(&self, block: u32) -> u64 {
        u64::from(block) * self.block_bytes() as u64 / 2
    }

    /// The first `positions` positions of a head of a KV block, as rows of the matrices K and V.
    pub(crate) fn rows(&self, block: u32, head: usize, positions: usize) -> Range<u32> {
        let first = (block as usize * self.heads() + head) * KV_BLOCK_SIZE;
        first as u32..(first + positions) as u32
    }

    /// The group of layers that it belongs to.
    pub fn group(&self) -> KvGroup {
        self.shape.group
    }

    /// Number of K/V heads.
    pub fn heads(&self) -> usize {
        self.shape.kv_heads
    }

    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.shape.head_dim
    }
}

/// The position of every token of the slices, padded with 0 to whole tiles.
pub fn positions(slices: &[SeqSlice<'_>]) -> Vec<u32> {
    padded(slices.iter().flat_map(SeqSlice::positions).collect(), 0)
}

/// The slot of every token of the slices in the cache: the index of its KV block times 64 plus the
/// position in the block. Padded with [`u32::MAX`], which is no slot, to whole tiles.
pub fn slot_mapping(slices: &[SeqSlice<'_>], group: KvGroup) -> Vec<u32> {
    let slot = |slice: &SeqSlice<'_>, position| {
        let (block, offset) = slice.blocks.slot(group, position);
        block * KV_BLOCK_SIZE as u32 + offset as u32
    };
    let slots = slices
        .iter()
        .flat_map(|slice| slice.positions().map(move |position| slot(slice, position)));
    padded(slots.collect(), u32::MAX)
}

fn padded(mut indices: Vec<u32>, padding: u32) -> Vec<u32> {
    indices.resize(indices.len().next_multiple_of(SIDE), padding);
    indices
}
