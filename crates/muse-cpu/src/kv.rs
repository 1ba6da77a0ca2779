//! The paged K and V store of a layer.

use std::fmt;
use std::ops::Range;

use muse_core::contract::{KvShape, PAGE_TOKENS, PageCopy};
use muse_core::{Error, Result};

use crate::aligned::Aligned;
use crate::layout::Layout;

/// K and V, each `[pages, kv_heads, 64, head_dim]` in the bytes of its type.
pub struct Kv {
    shape: KvShape,
    layout: Layout,
    row_bytes: usize,
    k: Aligned<u8>,
    v: Aligned<u8>,
}

impl Kv {
    pub(crate) fn zeroed(shape: KvShape) -> Result<Self> {
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
        let page_bytes = shape.kv_heads.saturating_mul(PAGE_TOKENS * row_bytes);
        let bytes = shape.pages.saturating_mul(page_bytes);
        let (k, v) = (Aligned::zeroed(bytes)?, Aligned::zeroed(bytes)?);
        Ok(Self { shape, layout, row_bytes, k, v })
    }

    pub(crate) fn shape(&self) -> KvShape {
        self.shape
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Bytes of K and of V of rows `rows` of a page, one head.
    pub(crate) fn rows(&self, page: u32, head: usize, rows: Range<usize>) -> (&[u8], &[u8]) {
        let range = self.range(page, head, rows);
        (&self.k[range.clone()], &self.v[range])
    }

    /// Stores a head's K and V row.
    pub(crate) fn write(&mut self, page: u32, head: usize, row: usize, k: &[f32], v: &[f32]) {
        let range = self.range(page, head, row..row + 1);
        self.layout.encode(k, &mut self.k[range.clone()]);
        self.layout.encode(v, &mut self.v[range]);
    }

    pub(crate) fn copy(&mut self, copy: &PageCopy) {
        assert!(copy.rows <= PAGE_TOKENS, "a page has {PAGE_TOKENS} rows, not {}", copy.rows);
        for head in 0..self.shape.kv_heads {
            let from = self.range(copy.from, head, 0..copy.rows);
            let to = self.range(copy.to, head, 0..copy.rows).start;
            self.k.copy_within(from.clone(), to);
            self.v.copy_within(from, to);
        }
    }

    pub(crate) fn save(&self, page: u32, out: &mut Vec<u8>) {
        let range = self.page(page);
        out.extend_from_slice(&self.k[range.clone()]);
        out.extend_from_slice(&self.v[range]);
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
        let (k, v) = taken.split_at(range.len());
        self.k[range.clone()].copy_from_slice(k);
        self.v[range].copy_from_slice(v);
        *bytes = rest;
        Ok(())
    }

    fn page(&self, page: u32) -> Range<usize> {
        assert!((page as usize) < self.shape.pages, "page {page} of {}", self.shape.pages);
        let width = self.shape.kv_heads * PAGE_TOKENS * self.row_bytes;
        page as usize * width..(page as usize + 1) * width
    }

    fn range(&self, page: u32, head: usize, rows: Range<usize>) -> Range<usize> {
        assert!(head < self.shape.kv_heads && rows.end <= PAGE_TOKENS, "rows of a page's head");
        let first = self.page(page).start + head * PAGE_TOKENS * self.row_bytes;
        first + rows.start * self.row_bytes..first + rows.end * self.row_bytes
    }
}

impl fmt::Debug for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KvShape { pages, kv_heads, head_dim, kind, .. } = self.shape;
        write!(f, "Kv[{pages}, {kv_heads}, {PAGE_TOKENS}, {head_dim}] {kind:?}")
    }
}

#[cfg(test)]
mod tests {
    use muse_core::contract::{KvType, PageGroup};

    use super::*;

    #[test]
    fn heads_that_are_no_whole_blocks_are_refused() {
        let shape = KvShape {
            group: PageGroup::Full,
            pages: 1,
            kv_heads: 1,
            head_dim: 40,
            kind: KvType::Q8_0,
        };
        let error = Kv::zeroed(shape).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains("40"), "{error}");
        assert!(Kv::zeroed(KvShape { kind: KvType::F16, ..shape }).is_ok());
    }

    #[test]
    fn a_store_larger_than_memory_is_refused() {
        let shape = KvShape {
            group: PageGroup::Full,
            pages: usize::MAX / 2,
            kv_heads: 8,
            head_dim: 128,
            kind: KvType::F32,
        };
        let error = Kv::zeroed(shape).unwrap_err();
        assert!(matches!(error, Error::Exhausted(_)), "{error:?}");
    }
}
