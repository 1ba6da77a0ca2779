//! The paged K and V store of a layer, and where the rows of a pass lie in it.

use std::ops::Range;

use muse_core::Result;
use muse_core::contract::{KvShape, KvType, PAGE_TOKENS, PageGroup, Place};
use muse_core::quant::tile::{SIDE, TileFormat};

use crate::device::{Buffer, Device};

/// K and V of a layer, each `[pages, kv_heads, 64, head_dim]` in BF16 tiles.
pub struct KvPages {
    pub(crate) k: Buffer,
    pub(crate) v: Buffer,
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
        let tile = TileFormat::Bf16.bytes() as u32;
        let bytes = (shape.pages * shape.page_bytes() / 2) as u64;
        let zeroed = || -> Result<Buffer> {
            let buffer = Buffer::new(device, bytes, tile)?;
            buffer.write(&vec![0; bytes as usize])?;
            Ok(buffer)
        };
        Ok(Self { k: zeroed()?, v: zeroed()?, shape })
    }

    /// Replaces all of K and all of V, each `[pages, kv_heads, 64, head_dim]`.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn write(&mut self, k: &[f32], v: &[f32]) -> Result<()> {
        let tiles = |values: &[f32]| TileFormat::Bf16.tilize(values, self.shape.head_dim);
        let (k, v) = (tiles(k), tiles(v));
        self.k.write(&k)?;
        self.v.write(&v)
    }

    /// All of K and all of V.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn read(&self) -> Result<(Vec<f32>, Vec<f32>)> {
        let KvShape { pages, kv_heads, head_dim, .. } = self.shape;
        let values = |buffer: &Buffer| -> Result<Vec<f32>> {
            let mut bytes = vec![0; buffer.bytes() as usize];
            buffer.read(&mut bytes)?;
            let rows = pages * kv_heads * PAGE_TOKENS;
            Ok(TileFormat::Bf16.untilize(&bytes, rows, head_dim))
        };
        Ok((values(&self.k)?, values(&self.v)?))
    }

    /// Bytes of a page, K and V.
    pub fn page_bytes(&self) -> usize {
        self.shape.page_bytes()
    }

    /// Appends a page, K then V, as tiles.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn save(&self, page: u32, out: &mut Vec<u8>) -> Result<()> {
        for buffer in [&self.k, &self.v] {
            let mut all = vec![0; buffer.bytes() as usize];
            buffer.read(&mut all)?;
            out.extend(&all[self.bytes_of(page)]);
        }
        Ok(())
    }

    /// Replaces a page by one that was saved.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn load(&mut self, page: u32, saved: &[u8]) -> Result<()> {
        let (k, v) = saved.split_at(self.page_bytes() / 2);
        for (buffer, saved) in [(&self.k, k), (&self.v, v)] {
            let mut all = vec![0; buffer.bytes() as usize];
            buffer.read(&mut all)?;
            all[self.bytes_of(page)].copy_from_slice(saved);
            buffer.write(&all)?;
        }
        Ok(())
    }

    /// Where a page lies in K and in V.
    fn bytes_of(&self, page: u32) -> Range<usize> {
        let bytes = self.page_bytes() / 2;
        page as usize * bytes..(page as usize + 1) * bytes
    }

    /// The layers that it belongs to.
    pub fn group(&self) -> PageGroup {
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

/// Positions of the rows of all places, for whole tiles: 0 for the rows that fill them up.
pub fn positions(places: &[Place<'_>]) -> Vec<u32> {
    let rows = places.iter().flat_map(|place| place.start..place.start + place.rows as u32);
    in_tiles(rows.collect(), 0)
}

/// Where K and V of the rows of all places go, for whole tiles: a page's number times 64 and the
/// row in it, and nowhere for the rows that fill them up.
pub fn slots(places: &[Place<'_>], group: PageGroup) -> Vec<u32> {
    let slot = |place: &Place<'_>, position| {
        let (page, row) = place.pages.slot(group, position);
        page * PAGE_TOKENS as u32 + row as u32
    };
    let rows = places.iter().flat_map(|place| {
        (place.start..place.start + place.rows as u32).map(move |position| slot(place, position))
    });
    in_tiles(rows.collect(), u32::MAX)
}

fn in_tiles(mut numbers: Vec<u32>, filling: u32) -> Vec<u32> {
    numbers.resize(numbers.len().next_multiple_of(SIDE), filling);
    numbers
}
