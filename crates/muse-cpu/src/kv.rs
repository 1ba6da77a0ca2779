//! The paged K and V store of a layer. Pages are saved row after row, however they lie in memory.

use std::fmt;
use std::ops::Range;

use muse_core::contract::{BlockCopy, KV_BLOCK_SIZE, KvShape};
use muse_core::{Error, Result};

use crate::aligned::Aligned;
use crate::kernels::pairs::{self, key_at, value_at};
use crate::layout::Layout;

/// K and V, each `[pages, kv_heads, 64, head_dim]` in the bytes of its type.
pub struct Kv {
    shape: KvShape,
    layout: Layout,
    /// The values of a page's head lie in pairs, see [`crate::kernels::pairs`].
    pairs: bool,
    row_bytes: usize,
    k: Aligned<u8>,
    v: Aligned<u8>,
}

impl Kv {
    /// A store of zeros, in pairs if `pairs` and its type and width allow.
    pub(crate) fn zeroed(shape: KvShape, pairs: bool) -> Result<Self> {
        let layout = Layout::from(shape.kind);
        let block = layout.format().block_values();
        if !shape.head_dim.is_multiple_of(block) {
            return Err(Error::Invalid(format!(
                "a {:?} cache needs heads whose width is a multiple of {block}, this model's is \
                 {}: choose bf16, f16 or f32",
                shape.kind, shape.head_dim
            )));
        }
        let row_bytes = layout.format().bytes_for(shape.head_dim);
        let block_bytes = shape.kv_heads.saturating_mul(KV_BLOCK_SIZE * row_bytes);
        let bytes = shape.blocks.saturating_mul(block_bytes);
        let (k, v) = (Aligned::zeroed(bytes)?, Aligned::zeroed(bytes)?);
        let pairs = pairs && layout == Layout::Bf16 && shape.head_dim.is_multiple_of(pairs::LANES);
        Ok(Self { shape, layout, pairs, row_bytes, k, v })
    }

    pub(crate) fn shape(&self) -> KvShape {
        self.shape
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether values lie in pairs: then only whole pages of a head can be read.
    pub(crate) fn in_pairs(&self) -> bool {
        self.pairs
    }

    /// Bytes of K and of V of rows `rows` of a page, one head.
    pub(crate) fn rows(&self, page: u32, head: usize, rows: Range<usize>) -> (&[u8], &[u8]) {
        let range = self.range(page, head, rows);
        (&self.k[range.clone()], &self.v[range])
    }

    /// Bytes of K and of V of a head's page.
    pub(crate) fn head(&self, page: u32, head: usize) -> (&[u8], &[u8]) {
        self.rows(page, head, 0..KV_BLOCK_SIZE)
    }

    /// Stores a head's K and V row.
    pub(crate) fn write(&mut self, page: u32, head: usize, row: usize, k: &[f32], v: &[f32]) {
        if self.pairs {
            let (range, dim) = (self.range(page, head, 0..KV_BLOCK_SIZE), self.shape.head_dim);
            put(k, &mut self.k[range.clone()], |col| key_at(row, col, dim));
            put(v, &mut self.v[range], |col| value_at(row, col, dim));
            return;
        }
        let range = self.range(page, head, row..row + 1);
        self.layout.encode(k, &mut self.k[range.clone()]);
        self.layout.encode(v, &mut self.v[range]);
    }

    pub(crate) fn copy(&mut self, copy: &BlockCopy) {
        assert!(
            copy.positions <= KV_BLOCK_SIZE,
            "a page has {KV_BLOCK_SIZE} rows, not {}",
            copy.positions
        );
        for head in 0..self.shape.kv_heads {
            let from = self.range(copy.from, head, 0..copy.positions);
            let to = self.range(copy.to, head, 0..copy.positions).start;
            if self.pairs {
                self.copy_pairs(from.start, to, copy.positions);
            } else {
                self.k.copy_within(from.clone(), to);
                self.v.copy_within(from, to);
            }
        }
    }

    /// Copies the first rows of a head's page between two starts.
    fn copy_pairs(&mut self, from: usize, to: usize, rows: usize) {
        let dim = self.shape.head_dim;
        for col in (0..dim).step_by(2) {
            let keys = key_at(0, col, dim)..key_at(rows, col, dim);
            self.k.copy_within(from + keys.start..from + keys.end, to + keys.start);
        }
        self.v.copy_within(from..from + value_at(rows / 2 * 2, 0, dim), to);
        if !rows.is_multiple_of(2) {
            for col in 0..dim {
                let at = value_at(rows - 1, col, dim);
                self.v.copy_within(from + at..from + at + 2, to + at);
            }
        }
    }

    pub(crate) fn save(&self, page: u32, out: &mut Vec<u8>) {
        let range = self.page(page);
        if !self.pairs {
            out.extend_from_slice(&self.k[range.clone()]);
            out.extend_from_slice(&self.v[range]);
            return;
        }
        let (k, v) = (&self.k[range.clone()], &self.v[range]);
        self.offsets(key_at).for_each(|at| out.extend_from_slice(&k[at..at + 2]));
        self.offsets(value_at).for_each(|at| out.extend_from_slice(&v[at..at + 2]));
    }

    pub(crate) fn load(&mut self, page: u32, bytes: &mut &[u8]) -> Result<()> {
        let range = self.page(page);
        let expect = 2 * range.len();
        let Some((taken, rest)) = bytes.split_at_checked(expect) else {
            return Err(Error::Corrupt(format!(
                "a saved page of {:?} K/V has {expect} bytes, only {} are left: it was cut, or \
                 saved with another cache type or model; delete it",
                self.shape.kind,
                bytes.len()
            )));
        };
        *bytes = rest;
        let (k, v) = taken.split_at(range.len());
        if !self.pairs {
            self.k[range.clone()].copy_from_slice(k);
            self.v[range].copy_from_slice(v);
            return Ok(());
        }
        let (keys, values) = (self.offsets(key_at), self.offsets(value_at));
        for (raw, at) in k.chunks_exact(2).zip(keys) {
            self.k[range.start + at..][..2].copy_from_slice(raw);
        }
        for (raw, at) in v.chunks_exact(2).zip(values) {
            self.v[range.start + at..][..2].copy_from_slice(raw);
        }
        Ok(())
    }

    /// Where the values of a page lie in pairs, in the order they are saved in.
    fn offsets(&self, at: fn(usize, usize, usize) -> usize) -> impl Iterator<Item = usize> + use<> {
        let KvShape { kv_heads, head_dim: dim, .. } = self.shape;
        let head_bytes = KV_BLOCK_SIZE * self.row_bytes;
        let rows =
            (0..kv_heads * KV_BLOCK_SIZE).map(|row| (row / KV_BLOCK_SIZE, row % KV_BLOCK_SIZE));
        rows.flat_map(move |(head, row)| {
            (0..dim).map(move |col| head * head_bytes + at(row, col, dim))
        })
    }

    fn page(&self, page: u32) -> Range<usize> {
        assert!((page as usize) < self.shape.blocks, "page {page} of {}", self.shape.blocks);
        let width = self.shape.kv_heads * KV_BLOCK_SIZE * self.row_bytes;
        page as usize * width..(page as usize + 1) * width
    }

    fn range(&self, page: u32, head: usize, rows: Range<usize>) -> Range<usize> {
        assert!(head < self.shape.kv_heads && rows.end <= KV_BLOCK_SIZE, "rows of a page's head");
        let first = self.page(page).start + head * KV_BLOCK_SIZE * self.row_bytes;
        first + rows.start * self.row_bytes..first + rows.end * self.row_bytes
    }
}

/// Writes a row of BF16 values to where they lie in pairs.
fn put(row: &[f32], bytes: &mut [u8], at: impl Fn(usize) -> usize) {
    for (col, &x) in row.iter().enumerate() {
        bytes[at(col)..][..2].copy_from_slice(&half::bf16::from_f32(x).to_le_bytes());
    }
}

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KvShape { blocks, kv_heads, head_dim, kind, .. } = self.shape;
        write!(f, "Kv[{blocks}, {kv_heads}, {KV_BLOCK_SIZE}, {head_dim}] {kind:?}")
    }
}

#[cfg(test)]
mod tests {
    use muse_core::contract::{KvGroup, KvType};

    use super::*;

    #[test]
    fn heads_that_are_no_whole_blocks_are_refused() {
        let shape = KvShape {
            group: KvGroup::Full,
            blocks: 1,
            kv_heads: 1,
            head_dim: 40,
            kind: KvType::Q8_0,
        };
        let error = Kv::zeroed(shape, true).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains("40"), "{error}");
        assert!(Kv::zeroed(KvShape { kind: KvType::F16, ..shape }, true).is_ok());
    }

    #[test]
    fn a_store_larger_than_memory_is_refused() {
        let shape = KvShape {
            group: KvGroup::Full,
            blocks: usize::MAX / 2,
            kv_heads: 8,
            head_dim: 128,
            kind: KvType::F32,
        };
        let error = Kv::zeroed(shape, true).unwrap_err();
        assert!(matches!(error, Error::Exhausted(_)), "{error:?}");
    }

    /// Pages of a store in pairs and of one in rows: copies and saved bytes are the same.
    #[test]
    fn pairs_are_copied_saved_and_loaded_as_rows_are() {
        let (dim, kv_heads) = (32, 2);
        let group = KvGroup::Full;
        let shape = KvShape { group, blocks: 3, kv_heads, head_dim: dim, kind: KvType::Bf16 };
        let mut stores = [true, false].map(|pairs| Kv::zeroed(shape, pairs).unwrap());
        assert_eq!(stores.each_ref().map(Kv::in_pairs), [true, false]);
        for store in &mut stores {
            for (i, (head, row)) in (0..kv_heads)
                .flat_map(|head| (0..KV_BLOCK_SIZE).map(move |row| (head, row)))
                .enumerate()
            {
                let values = |seed: usize| -> Vec<f32> {
                    (0..dim).map(|col| ((i * dim + col) * seed % 1009) as f32 - 500.0).collect()
                };
                store.write(1, head, row, &values(7919), &values(6007));
            }
            for (to, rows) in [(0, 13), (2, 64)] {
                store.copy(&BlockCopy { group, from: 1, to, positions: rows });
            }
        }
        let saved = |store: &Kv, page| {
            let mut bytes = Vec::new();
            store.save(page, &mut bytes);
            bytes
        };
        let [paired, plain] = &mut stores;
        for page in 0..3 {
            assert!(saved(paired, page) == saved(plain, page), "page {page}");
        }
        let page = saved(plain, 0);
        paired.load(2, &mut page.as_slice()).unwrap();
        assert!(saved(paired, 2) == page, "loaded and saved again");
    }
}
