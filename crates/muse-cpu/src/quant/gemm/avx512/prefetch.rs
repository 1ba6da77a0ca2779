//! Prefetches weights that are multiplied later.

use std::arch::x86_64::*;

use super::source::BlockSource;

/// How far ahead weights are prefetched, in bytes: about memory bandwidth times its latency.
const AHEAD: usize = 4096;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches while `lines` are multiplied, which hold `steps` steps.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn prefetch<S: BlockSource, const R: usize, const NEXT: bool>(
    next: &mut Prefetcher,
    lines: &[u8],
    steps: usize,
) {
    if NEXT {
        (0..steps).for_each(|_| next.prefetch());
    } else if S::FROM_MEMORY {
        prefetch_ahead::<R>(lines);
    }
}

/// Prefetches what lies [`AHEAD`] bytes behind `lines`. A tile of one row reads weights only once,
/// so they bypass the caches; with larger batches the next tile reads them again.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::quant) fn prefetch_ahead<const R: usize>(lines: &[u8]) {
    for line in (0..lines.len()).step_by(LINE) {
        let at = lines.as_ptr().wrapping_add(AHEAD + line).cast();
        if R == 1 { _mm_prefetch::<_MM_HINT_NTA>(at) } else { _mm_prefetch::<_MM_HINT_T0>(at) }
    }
}

/// Prefetches memory that is read later, a few lines at a time.
pub(in crate::quant) struct Prefetcher {
    line: *const u8,
    /// Lines per call of [`Self::prefetch`].
    lines: usize,
}

impl Prefetcher {
    /// Prefetches `bytes` over `steps` calls.
    #[inline]
    pub(in crate::quant) fn new(bytes: &[u8], steps: usize) -> Self {
        Self { line: bytes.as_ptr(), lines: bytes.len().div_ceil(LINE * steps) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(in crate::quant) fn prefetch(&mut self) {
        for _ in 0..self.lines {
            // Into the second-level cache; the first-level cache holds the tile that is multiplied.
            _mm_prefetch::<_MM_HINT_T1>(self.line.cast());
            self.line = self.line.wrapping_add(LINE);
        }
    }
}
