//! The KV cache of a layer. KV blocks are saved position by position, whatever their order in
//! memory.

use std::fmt;
use std::ops::Range;

use muse_core::contract::{BlockCopy, KV_BLOCK_SIZE, KvShape};
use muse_core::{Error, Result};

use crate::aligned::Aligned;
use crate::kernels::Kernels;
use crate::kernels::attention_bf16::{self, k_offset, v_offset};
use crate::layout::Layout;
use crate::split::Matrix;

/// K and V, each `[blocks, kv_heads, 64, head_dim]` in the bytes of its type.
pub struct Kv {
    shape: KvShape,
    layout: Layout,
    /// Whether the values of a head in a KV block are interleaved in pairs, see
    /// [`crate::kernels::attention_bf16`].
    interleaved: bool,
    /// Bytes of a head of one position.
    row_bytes: usize,
    k: Aligned<u8>,
    v: Aligned<u8>,
}

impl Kv {
    /// A cache of zeros. `interleave` interleaves its values in pairs if its type and head width
    /// allow.
    pub(crate) fn zeroed(shape: KvShape, interleave: bool) -> Result<Self> {
        let layout = Layout::from(shape.kind);
        let quant_block = layout.format().block_values();
        if !shape.head_dim.is_multiple_of(quant_block) {
            return Err(Error::Invalid(format!(
                "a {:?} KV cache needs a head width that is a multiple of {quant_block}, but that \
                 of this model is {}: choose bf16, f16 or f32",
                shape.kind, shape.head_dim
            )));
        }
        let row_bytes = layout.format().bytes_for(shape.head_dim);
        let block_bytes = shape.kv_heads.saturating_mul(KV_BLOCK_SIZE * row_bytes);
        let bytes = shape.blocks.saturating_mul(block_bytes);
        let (k, v) = (Aligned::zeroed(bytes)?, Aligned::zeroed(bytes)?);
        let fits = layout == Layout::Bf16 && shape.head_dim.is_multiple_of(attention_bf16::LANES);
        Ok(Self { shape, layout, interleaved: interleave && fits, row_bytes, k, v })
    }

    /// Number and shape of its KV blocks.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether values are interleaved in pairs: then only [`Self::head`] can read them.
    pub(crate) fn is_interleaved(&self) -> bool {
        self.interleaved
    }

    /// The bytes of K and of V of some positions of a KV block, one head.
    pub(crate) fn positions(
        &self,
        block: u32,
        head: usize,
        positions: Range<usize>,
    ) -> (&[u8], &[u8]) {
        let range = self.range(block, head, positions);
        (&self.k[range.clone()], &self.v[range])
    }

    /// The bytes of K and of V of a KV block, one head.
    pub(crate) fn head(&self, block: u32, head: usize) -> (&[u8], &[u8]) {
        self.positions(block, head, 0..KV_BLOCK_SIZE)
    }

    /// The heads of all KV blocks, which several tasks may write.
    pub(crate) fn heads_mut(&mut self) -> KvHeads<'_> {
        let Self { shape, layout, interleaved, row_bytes, ref mut k, ref mut v } = *self;
        let head_bytes = KV_BLOCK_SIZE * row_bytes;
        let (k, v) = (Matrix::new(k, head_bytes), Matrix::new(v, head_bytes));
        KvHeads { shape, layout, interleaved, row_bytes, k, v }
    }

    /// Copies the first positions of a KV block to another one.
    pub(crate) fn copy(&mut self, copy: &BlockCopy) {
        assert!(copy.positions <= KV_BLOCK_SIZE, "{} of {KV_BLOCK_SIZE} positions", copy.positions);
        for head in 0..self.shape.kv_heads {
            let from = self.range(copy.from, head, 0..copy.positions);
            let to = self.range(copy.to, head, 0..copy.positions).start;
            if self.interleaved {
                self.copy_interleaved(from.start, to, copy.positions);
            } else {
                self.k.copy_within(from.clone(), to);
                self.v.copy_within(from, to);
            }
        }
    }

    /// Copies the first `n` positions of a head between KV blocks that begin at bytes `from` and
    /// `to`.
    fn copy_interleaved(&mut self, from: usize, to: usize, n: usize) {
        let dim = self.shape.head_dim;
        for col in (0..dim).step_by(2) {
            let keys = k_offset(0, col)..k_offset(n, col);
            self.k.copy_within(from + keys.start..from + keys.end, to + keys.start);
        }
        self.v.copy_within(from..from + v_offset(n / 2 * 2, 0, dim), to);
        if !n.is_multiple_of(2) {
            for col in 0..dim {
                let at = v_offset(n - 1, col, dim);
                self.v.copy_within(from + at..from + at + 2, to + at);
            }
        }
    }

    /// Appends the bytes of a KV block to `out`: K, then V, each by heads and positions.
    pub(crate) fn save(&self, block: u32, out: &mut Vec<u8>) {
        let range = self.block(block);
        let (k, v) = (&self.k[range.clone()], &self.v[range]);
        if !self.interleaved {
            out.extend_from_slice(k);
            out.extend_from_slice(v);
            return;
        }
        self.k_offsets().for_each(|at| out.extend_from_slice(&k[at..at + 2]));
        self.v_offsets().for_each(|at| out.extend_from_slice(&v[at..at + 2]));
    }

    /// Fills a KV block with bytes that [`Self::save`] wrote, and takes them off the front of
    /// `bytes`.
    pub(crate) fn load(&mut self, block: u32, bytes: &mut &[u8]) -> Result<()> {
        let range = self.block(block);
        let expect = 2 * range.len();
        let Some((saved, rest)) = bytes.split_at_checked(expect) else {
            return Err(Error::Corrupt(format!(
                "a saved KV block of {:?} has {expect} bytes, but only {} are left: it was cut, or \
                 saved with another cache type or model; delete it",
                self.shape.kind,
                bytes.len()
            )));
        };
        *bytes = rest;
        let (k, v) = saved.split_at(range.len());
        if !self.interleaved {
            self.k[range.clone()].copy_from_slice(k);
            self.v[range].copy_from_slice(v);
            return Ok(());
        }
        let (k_offsets, v_offsets) = (self.k_offsets(), self.v_offsets());
        for (raw, at) in k.chunks_exact(2).zip(k_offsets) {
            self.k[range.start + at..][..2].copy_from_slice(raw);
        }
        for (raw, at) in v.chunks_exact(2).zip(v_offsets) {
            self.v[range.start + at..][..2].copy_from_slice(raw);
        }
        Ok(())
    }

    /// Offsets of the interleaved values of K in a KV block, in the order in which they are saved.
    fn k_offsets(&self) -> impl Iterator<Item = usize> + use<> {
        self.offsets(|position, col, _| k_offset(position, col))
    }

    /// The same of V.
    fn v_offsets(&self) -> impl Iterator<Item = usize> + use<> {
        self.offsets(v_offset)
    }

    fn offsets(
        &self,
        offset: fn(usize, usize, usize) -> usize,
    ) -> impl Iterator<Item = usize> + use<> {
        let KvShape { kv_heads, head_dim: dim, .. } = self.shape;
        let head_bytes = KV_BLOCK_SIZE * self.row_bytes;
        let rows =
            (0..kv_heads * KV_BLOCK_SIZE).map(|row| (row / KV_BLOCK_SIZE, row % KV_BLOCK_SIZE));
        rows.flat_map(move |(head, position)| {
            (0..dim).map(move |col| head * head_bytes + offset(position, col, dim))
        })
    }

    /// The bytes of a KV block in K and in V.
    fn block(&self, block: u32) -> Range<usize> {
        assert!((block as usize) < self.shape.blocks, "KV block {block} of {}", self.shape.blocks);
        let bytes = self.shape.kv_heads * KV_BLOCK_SIZE * self.row_bytes;
        block as usize * bytes..(block as usize + 1) * bytes
    }

    /// The bytes of some positions of a KV block in K and in V, one head.
    fn range(&self, block: u32, head: usize, positions: Range<usize>) -> Range<usize> {
        assert!(head < self.shape.kv_heads, "K/V head {head} of {}", self.shape.kv_heads);
        assert!(positions.end <= KV_BLOCK_SIZE, "positions {positions:?} of {KV_BLOCK_SIZE}");
        let start = self.block(block).start + head * KV_BLOCK_SIZE * self.row_bytes;
        start + positions.start * self.row_bytes..start + positions.end * self.row_bytes
    }
}

/// The heads of the KV blocks of a cache, of which several tasks write different ones.
pub(crate) struct KvHeads<'a> {
    shape: KvShape,
    layout: Layout,
    interleaved: bool,
    row_bytes: usize,
    /// A row for each head of each KV block.
    k: Matrix<'a, u8>,
    v: Matrix<'a, u8>,
}

impl KvHeads<'_> {
    /// Stores K and V of consecutive positions of a KV block from `first` on, one head; `k` and `v`
    /// are rows of all heads, `[positions, kv_heads · head_dim]`.
    ///
    /// # Safety
    /// No other task reads or writes this head of this KV block meanwhile.
    pub(crate) unsafe fn write(
        &self,
        kernels: &Kernels,
        block: u32,
        head: usize,
        first: usize,
        k: &[f32],
        v: &[f32],
    ) {
        let KvShape { blocks, kv_heads, head_dim: dim, .. } = self.shape;
        let block = block as usize;
        assert!(block < blocks && head < kv_heads, "KV block {block} of {blocks}, head {head}");
        let bytes = KV_BLOCK_SIZE * self.row_bytes;
        // SAFETY: the caller guarantees that no other task has this head of this KV block.
        let k_head = unsafe { self.k.part(block * kv_heads + head, 0, bytes) };
        // SAFETY: as above.
        let v_head = unsafe { self.v.part(block * kv_heads + head, 0, bytes) };
        let rows = |x| <[f32]>::chunks_exact(x, kv_heads * dim).map(|x| &x[head * dim..][..dim]);
        if self.interleaved {
            interleave_k(kernels, rows(k), first, k_head);
            return interleave_v(kernels, rows(v), first, v_head);
        }
        let slots = |bytes| <[u8]>::chunks_exact_mut(bytes, self.row_bytes).skip(first);
        rows(k).zip(slots(k_head)).for_each(|(k, slot)| self.layout.encode(k, slot));
        rows(v).zip(slots(v_head)).for_each(|(v, slot)| self.layout.encode(v, slot));
    }
}

/// Widest piece of a row that is rounded at a time.
const PIECE: usize = 128;

/// Stores keys of consecutive positions: pairs of columns share a word.
fn interleave_k<'a>(
    kernels: &Kernels,
    rows: impl Iterator<Item = &'a [f32]>,
    first: usize,
    head: &mut [u8],
) {
    let words = head.as_chunks_mut::<4>().0;
    for (row, position) in rows.zip(first..) {
        for (piece, values) in row.chunks(PIECE).enumerate() {
            let mut rounded = [0; PIECE / 2];
            (kernels.round_bf16)(values, &mut rounded[..values.len() / 2], 1);
            let at = k_offset(position, piece * PIECE) / 4;
            let words = words[at..].iter_mut().step_by(KV_BLOCK_SIZE);
            let rounded = &rounded[..values.len() / 2];
            words.zip(rounded).for_each(|(word, rounded)| *word = rounded.to_le_bytes());
        }
    }
}

/// Stores values of consecutive positions: pairs of positions share a word.
fn interleave_v<'a>(
    kernels: &Kernels,
    rows: impl Iterator<Item = &'a [f32]>,
    first: usize,
    head: &mut [u8],
) {
    let words = head.as_chunks_mut::<4>().0;
    let (mut rows, mut position) = (rows.peekable(), first);
    while let Some(row) = rows.next() {
        let words = &mut words[v_offset(position / 2 * 2, 0, row.len()) / 4..][..row.len()];
        match rows.next_if(|_| position.is_multiple_of(2)) {
            Some(next) => {
                (kernels.interleave_bf16)(row, next, words);
                position += 2;
            }
            None => {
                let half = position % 2 * 2;
                for (word, x) in words.iter_mut().zip(row) {
                    word[half..][..2].copy_from_slice(&half::bf16::from_f32(*x).to_le_bytes());
                }
                position += 1;
            }
        }
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
    use crate::kernels::Isa;

    #[test]
    fn head_widths_of_partial_quant_blocks_are_refused() {
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
    fn a_cache_larger_than_memory_is_refused() {
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

    /// An interleaved cache and a plain one give the same saved bytes after the same operations.
    #[test]
    fn interleaved_blocks_are_copied_saved_and_loaded_like_plain_ones() {
        let (dim, kv_heads) = (32, 2);
        let group = KvGroup::Full;
        let shape = KvShape { group, blocks: 3, kv_heads, head_dim: dim, kind: KvType::Bf16 };
        let mut caches = [true, false].map(|interleave| Kv::zeroed(shape, interleave).unwrap());
        assert_eq!(caches.each_ref().map(Kv::is_interleaved), [true, false]);
        for cache in &mut caches {
            let values = |seed: usize| -> Vec<f32> {
                let count = KV_BLOCK_SIZE * kv_heads * dim;
                (0..count).map(|i| (i * seed % 1009) as f32 - 500.0).collect()
            };
            let (k, v, width) = (values(7919), values(6007), kv_heads * dim);
            let (kernels, heads) = (Kernels::new(Isa::best()), cache.heads_mut());
            // Runs that begin and end at even and at odd positions.
            for (first, end) in [(0, 1), (1, 2), (2, 5), (5, 12), (12, 13), (13, 64)] {
                let run = first * width..end * width;
                for head in 0..kv_heads {
                    // SAFETY: there is no other task.
                    unsafe {
                        heads.write(&kernels, 1, head, first, &k[run.clone()], &v[run.clone()]);
                    }
                }
            }
            for (to, positions) in [(0, 13), (2, 64)] {
                cache.copy(&BlockCopy { group, from: 1, to, positions });
            }
        }
        let saved = |cache: &Kv, block| {
            let mut bytes = Vec::new();
            cache.save(block, &mut bytes);
            bytes
        };
        let [interleaved, plain] = &mut caches;
        for block in 0..3 {
            assert!(saved(interleaved, block) == saved(plain, block), "KV block {block}");
        }
        let bytes = saved(plain, 0);
        interleaved.load(2, &mut bytes.as_slice()).unwrap();
        assert!(saved(interleaved, 2) == bytes, "loaded and saved again");
    }
}
