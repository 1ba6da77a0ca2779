//! The paged K and V store of a layer, and where the rows of a pass lie in it.

use std::ops::Range;

use muse_core::Result;
use muse_core::contract::{KV_BLOCK_SIZE, KvGroup, KvShape, KvType, SeqSlice};
use muse_core::quant::tile::{SIDE, TileFormat};

use crate::device::Device;
use crate::matrix::Matrix;

/// K and V of a layer, each `[pages, kv_heads, 64, head_dim]` in BF16 tiles: as a matrix, heads of
/// 64 rows one below the other.
pub struct KvPages {
    pub(crate) k: Matrix,
    pub(crate) v: Matrix,
    shape: KvShape,
}

impl KvPages {
    /// A zeroed store: what no row was written to is read as well, and must be finite.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when the device has no room.
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

    /// Replaces all of K and all of V, each `[pages, kv_heads, 64, head_dim]`.
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

    /// Bytes of a page, K and V.
    pub fn page_bytes(&self) -> usize {
        self.shape.block_bytes()
    }

    /// Appends a page, K then V, as tiles.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn save(&self, page: u32, out: &mut Vec<u8>) -> Result<()> {
        let half = self.page_bytes() / 2;
        for matrix in [&self.k, &self.v] {
            let before = out.len();
            out.resize(before + half, 0);
            matrix.buffer.read_at(self.first_byte(page), &mut out[before..])?;
        }
        Ok(())
    }

    /// Replaces a page by one that was saved.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn load(&mut self, page: u32, saved: &[u8]) -> Result<()> {
        let (k, v) = saved.split_at(self.page_bytes() / 2);
        self.k.buffer.write_at(self.first_byte(page), k)?;
        self.v.buffer.write_at(self.first_byte(page), v)
    }

    /// Where a page begins in K and in V.
    fn first_byte(&self, page: u32) -> u64 {
        u64::from(page) * self.page_bytes() as u64 / 2
    }

    /// The first rows of a head of a page, as rows of K and of V.
    pub(crate) fn rows(&self, page: u32, head: usize, rows: usize) -> Range<u32> {
        let first = (page as usize * self.heads() + head) * KV_BLOCK_SIZE;
        first as u32..(first + rows) as u32
    }

    /// The layers that it belongs to.
    pub fn group(&self) -> KvGroup {
        self.shape.group
    }

    /// K/V heads.
    pub fn heads(&self) -> usize {
        self.shape.kv_heads
    }

    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.shape.head_dim
    }
}

/// Positions of the rows of all slices, for whole tiles: 0 for the rows that fill them up.
pub fn positions(slices: &[SeqSlice<'_>]) -> Vec<u32> {
    in_tiles(slices.iter().flat_map(SeqSlice::positions).collect(), 0)
}

/// Where K and V of the rows of all slices go, for whole tiles: a page's number times 64 and the
/// row in it, and nowhere for the rows that fill them up.
pub fn slots(slices: &[SeqSlice<'_>], group: KvGroup) -> Vec<u32> {
    let slot = |slice: &SeqSlice<'_>, position| {
        let (page, row) = slice.blocks.slot(group, position);
        page * KV_BLOCK_SIZE as u32 + row as u32
    };
    let rows = slices
        .iter()
        .flat_map(|slice| slice.positions().map(move |position| slot(slice, position)));
    in_tiles(rows.collect(), u32::MAX)
}

fn in_tiles(mut numbers: Vec<u32>, filling: u32) -> Vec<u32> {
    numbers.resize(numbers.len().next_multiple_of(SIDE), filling);
    numbers
}
