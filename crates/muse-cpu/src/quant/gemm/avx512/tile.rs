//! Reads the words of a tile of quantized activations.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::source::BlockSource;
use crate::kernels::quantize::Int8Offsets;
use crate::quant::layout::{PackedLayout, activation_layout};

/// A tile of `R` rows of activations.
pub(super) struct ActivationTile<'a, const R: usize> {
    start: *const i32,
    /// Offsets of the scales, the sums and the sum pairs in a row.
    pub(super) scales: usize,
    pub(super) sums: usize,
    pub(super) sum_pairs: usize,
    words: PhantomData<&'a [i32]>,
}

impl<'a, const R: usize> ActivationTile<'a, R> {
    #[inline]
    pub(super) fn new<S: BlockSource>(x: &'a [i32], k: usize) -> Self {
        assert!(k.is_multiple_of(S::Layout::BLOCK), "whole blocks");
        let offsets = Int8Offsets::new(k, activation_layout::<S::Layout>());
        assert_eq!(x.len(), R * offsets.len, "a tile of {R} rows");
        let (sums, sum_pairs) = offsets.of_group(S::Layout::GROUP);
        Self { start: x.as_ptr(), scales: offsets.scales, sums, sum_pairs, words: PhantomData }
    }

    /// Word `at` of row `r`.
    ///
    /// # Safety
    /// `r < R`, and `at` is inside the row.
    #[inline(always)]
    pub(super) unsafe fn word(&self, r: usize, at: usize) -> i32 {
        // SAFETY: `new` checked that there are `R` whole rows, interleaved word by word, and holds
        // the borrow; the caller guarantees that `r` and `at` are inside.
        unsafe { self.start.wrapping_add(at * R + r).read() }
    }

    /// Word `at` of each row, broadcast to all lanes.
    ///
    /// # Safety
    /// `at` is inside a row.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn broadcast(&self, at: usize) -> [__m512i; R] {
        let mut words = [_mm512_setzero_si512(); R];
        for (r, word) in words.iter_mut().enumerate() {
            // SAFETY: `r < R`, and the caller guarantees that `at` is inside.
            *word = _mm512_set1_epi32(unsafe { self.word(r, at) });
        }
        words
    }
}
