//! The formats of activations that are multiplied with packed weights, and where the words of a row
//! are.

use std::ops::Range;

use crate::kernels::Kernels;
use crate::kernels::quantize::{BORROW_BIAS, Int8Layout, Int8Offsets, weight_offset};

/// Rows of the largest tile: they share the weights that are unpacked.
pub(crate) const MAX_TILE_ROWS: usize = 8;
/// The largest chunk of K: a panel of it and two tiles of activations fit a second-level cache of
/// 1 MB.
const MAX_K_CHUNK: usize = 8192;

/// A format of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActivationFormat {
    /// Signed bytes with scales and sums, as [`crate::kernels::quantize`] writes them.
    Int8(Int8Layout),
    /// BF16, as [`crate::kernels::round_bf16`] writes it.
    Bf16,
}

impl ActivationFormat {
    /// All formats.
    pub(crate) const ALL: [Self; 4] = {
        let [a, b, c] = Int8Layout::ALL;
        [Self::Int8(a), Self::Int8(b), Self::Int8(c), Self::Bf16]
    };

    /// Words of a row of `k` values.
    pub(crate) const fn words(self, k: usize) -> usize {
        match self {
            Self::Int8(layout) => Int8Offsets::new(k, layout).len,
            Self::Bf16 => self.quant_words(k),
        }
    }

    /// Words that hold the quants, or BF16 values, of `k` values; a row begins with them.
    pub(crate) const fn quant_words(self, k: usize) -> usize {
        match self {
            Self::Int8(_) => k / 4,
            Self::Bf16 => k.div_ceil(2),
        }
    }

    /// The length of the chunks that K is split into, except for the last one. The products of a
    /// chunk are added up before they are added to those of the chunks before. Chunks are as equal
    /// as possible.
    pub(crate) const fn k_chunk(self, k: usize) -> usize {
        let multiple = match self {
            Self::Int8(layout) => layout.block,
            Self::Bf16 => 2,
        };
        k.div_ceil(k.div_ceil(MAX_K_CHUNK)).next_multiple_of(multiple)
    }

    /// The chunks of `k` values.
    pub(crate) fn k_chunks(self, k: usize) -> impl Iterator<Item = Range<usize>> {
        let chunk = self.k_chunk(k);
        (0..k).step_by(chunk).map(move |start| start..k.min(start + chunk))
    }

    /// Converts a tile of rows of `k` values, chunk after chunk of K.
    pub(crate) fn write(self, kernels: &Kernels, x: &[f32], k: usize, words: &mut [i32]) {
        let rows = x.len() / k;
        for chunk in self.k_chunks(k) {
            let words = &mut words[rows * self.words(chunk.start)..rows * self.words(chunk.end)];
            for (r, x) in x.chunks_exact(k).enumerate() {
                let (x, words) = (&x[chunk.clone()], &mut words[r..]);
                match self {
                    Self::Int8(layout) => (kernels.quantize)(x, layout, words, rows),
                    Self::Bf16 => (kernels.round_bf16)(x, words, rows),
                }
            }
        }
    }
}

/// Rows of the next tile if `left` rows are left: tiles have 8 rows, the last ones 4, 2 and 1. The
/// words of the rows of a tile of `n` are interleaved, word `i` of row `r` at `n i + r`, so that a
/// kernel reads memory in order.
pub(crate) const fn tile_rows(left: usize) -> usize {
    match left {
        MAX_TILE_ROWS.. => MAX_TILE_ROWS,
        4.. => 4,
        2.. => 2,
        _ => left,
    }
}

/// Reads a row of quantized activations in a tile.
#[derive(Clone, Copy)]
pub(super) struct Int8Row<'a> {
    words: &'a [i32],
    /// Rows of the tile.
    stride: usize,
    /// Offsets of the scales and the sums in the row.
    scales: usize,
    sums: usize,
    /// With integer scales, what the sums are multiplied by.
    sum_factor: Option<i32>,
}

impl<'a> Int8Row<'a> {
    /// Row `row` of a tile of `rows` rows of `k` values, read with the sums of groups of 16 or 32.
    pub(super) fn new(
        tile: &'a [i32],
        (row, rows): (usize, usize),
        k: usize,
        layout: Int8Layout,
        group: usize,
    ) -> Self {
        let offsets = Int8Offsets::new(k, layout);
        let (sums, _) = offsets.of_group(group);
        let sum_factor = layout.integer_scales.then_some(weight_offset(group));
        Self { words: &tile[row..], stride: rows, scales: offsets.scales, sums, sum_factor }
    }

    /// Quants `4 quad ..` as a word, the first in the lowest bits.
    #[inline(always)]
    pub(super) fn quants(&self, quad: usize) -> i32 {
        self.words[quad * self.stride]
    }

    /// The scale of a block.
    #[inline(always)]
    pub(super) fn scale(&self, block: usize) -> f32 {
        f32::from_bits(self.words[(self.scales + block) * self.stride] as u32)
    }

    /// The negated sum of a group of quants.
    #[inline(always)]
    pub(super) fn negated_sum(&self, group: usize) -> i32 {
        let word = self.words[(self.sums + group) * self.stride];
        self.sum_factor.map_or(word, |factor| (word - BORROW_BIAS) / factor)
    }
}
