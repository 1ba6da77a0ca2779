//! What activations become before they meet packed weights, and where things are in rows of that.

use std::ops::Range;

use super::MOST_ROWS;
use crate::kernels::Kernels;
use crate::kernels::quantize::{Form, HALF, Places, centre};

/// The longest run of K: a panel of it and two tiles of rows stay in a second-level cache of 1 MB.
const MOST_RUN: usize = 8192;

/// A form of activations; a row of them is a run of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activations {
    /// Bytes, as [`crate::kernels::quantize`] writes them.
    Int8(Form),
    /// Upper halves of floats, as [`crate::kernels::halves`] writes them.
    Bf16,
}

impl Activations {
    /// Every form.
    pub(crate) const ALL: [Self; 4] = {
        let [a, b, c] = Form::ALL;
        [Self::Int8(a), Self::Int8(b), Self::Int8(c), Self::Bf16]
    };

    /// Words of a row of `k` values.
    pub(crate) const fn words(self, k: usize) -> usize {
        match self {
            Self::Int8(form) => Places::of(k, form).end,
            Self::Bf16 => self.numbers(k),
        }
    }

    /// Words of the numbers of `k` values, which come first.
    pub(crate) const fn numbers(self, k: usize) -> usize {
        match self {
            Self::Int8(_) => k / 4,
            Self::Bf16 => k.div_ceil(2),
        }
    }

    /// Values of K that are multiplied at a time, the last ones aside, and then added to those before;
    /// runs are as even as can be.
    pub(crate) const fn run(self, k: usize) -> usize {
        let whole = match self {
            Self::Int8(form) => form.block,
            Self::Bf16 => 2,
        };
        k.div_ceil(k.div_ceil(MOST_RUN)).next_multiple_of(whole)
    }

    /// The runs of `k` values.
    pub(crate) fn runs(self, k: usize) -> impl Iterator<Item = Range<usize>> {
        let run = self.run(k);
        (0..k).step_by(run).map(move |start| start..k.min(start + run))
    }

    /// Writes a tile of rows of `k` values, run after run.
    pub(crate) fn write(self, kernels: &Kernels, x: &[f32], k: usize, words: &mut [i32]) {
        let rows = x.len() / k;
        for run in self.runs(k) {
            let words = &mut words[rows * self.words(run.start)..rows * self.words(run.end)];
            for (r, x) in x.chunks_exact(k).enumerate() {
                let (x, words) = (&x[run.clone()], &mut words[r..]);
                match self {
                    Self::Int8(form) => (kernels.quantize)(x, form, words, rows),
                    Self::Bf16 => (kernels.halves)(x, words, rows),
                }
            }
        }
    }
}

/// Rows of the next tile where `left` are left: rows lie in tiles of 8, then of 4, 2 and 1. Word
/// `i` of row `r` of a tile of `n` is its word `n i + r`, so that a kernel reads one stream.
pub(crate) const fn tile_rows(left: usize) -> usize {
    match left {
        MOST_ROWS.. => MOST_ROWS,
        4.. => 4,
        2.. => 2,
        _ => left,
    }
}

/// A row of bytes that is read.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    words: &'a [i32],
    /// Rows of its tile.
    stride: usize,
    /// Where scales and sums begin in the row.
    scales: usize,
    sums: usize,
    /// What whole sums are multiplied by.
    centre: Option<i32>,
}

impl<'a> Row<'a> {
    /// Row `row` of a tile of `rows`, each of `k` values, with the sums of groups of 16 or 32.
    pub(super) fn of(
        tile: &'a [i32],
        (row, rows): (usize, usize),
        k: usize,
        form: Form,
        group: usize,
    ) -> Self {
        let places = Places::of(k, form);
        let (sums, _) = places.of_group(group);
        let centre = form.whole.then_some(centre(group));
        Self { words: &tile[row..], stride: rows, scales: places.scales, sums, centre }
    }

    /// Four numbers, the first in the lowest bits.
    #[inline(always)]
    pub(super) fn numbers(&self, quad: usize) -> i32 {
        self.words[quad * self.stride]
    }

    #[inline(always)]
    pub(super) fn scale(&self, block: usize) -> f32 {
        f32::from_bits(self.words[(self.scales + block) * self.stride] as u32)
    }

    /// Minus the sum of a group.
    #[inline(always)]
    pub(super) fn sum(&self, group: usize) -> i32 {
        let word = self.words[(self.sums + group) * self.stride];
        self.centre.map_or(word, |centre| (word - HALF) / centre)
    }
}
