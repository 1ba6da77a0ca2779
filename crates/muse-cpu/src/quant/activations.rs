//! What activations become before they meet packed weights, and where things are in rows of that.

use crate::kernels::Kernels;

/// A form of activations; a row of them is a run of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activations {
    /// Bytes, as [`crate::kernels::quantize`] writes them.
    Int8 {
        /// Values that share a scale, 32 or 256.
        block: usize,
    },
    /// Upper halves of floats, as [`crate::kernels::halves`] writes them.
    Bf16,
}

impl Activations {
    /// Every form.
    pub(crate) const ALL: [Self; 3] =
        [Self::Int8 { block: 32 }, Self::Int8 { block: 256 }, Self::Bf16];

    /// Words of a row of `k` values.
    pub(crate) const fn words(self, k: usize) -> usize {
        match self {
            Self::Int8 { block } => k / 4 + k / block + k / 16 + k / 32,
            Self::Bf16 => k.div_ceil(2),
        }
    }

    /// Writes a row of values.
    pub(crate) fn write(self, kernels: &Kernels, x: &[f32], words: &mut [i32]) {
        match self {
            Self::Int8 { block } => (kernels.quantize)(x, block, words),
            Self::Bf16 => (kernels.halves)(x, words),
        }
    }
}

/// A row of bytes that is read.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    /// Four numbers a word, the first in the lowest bits.
    pub(super) numbers: &'a [i32],
    /// Bits of the scales.
    pub(super) scales: &'a [i32],
    /// Minus the sums of groups.
    pub(super) sums: &'a [i32],
}

impl<'a> Row<'a> {
    /// Row `index` of rows of `k` values side by side, with the sums of groups of 16 or 32.
    pub(super) fn of(words: &'a [i32], k: usize, block: usize, index: usize, group: usize) -> Self {
        let width = Activations::Int8 { block }.words(k);
        let (numbers, rest) = words[index * width..][..width].split_at(k / 4);
        let (scales, rest) = rest.split_at(k / block);
        let (sums_16, sums_32) = rest.split_at(k / 16);
        Self { numbers, scales, sums: if group == 16 { sums_16 } else { sums_32 } }
    }
}
