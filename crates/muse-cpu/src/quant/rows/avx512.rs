//! 16 rows of a panel a vector, `vpdpbusd` for 4 numbers of each.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use crate::kernels::quantize::Places;
pub(in crate::quant) use crate::kernels::simd::avx512::vector;
use crate::quant::{MOST_PAIRS, PANEL, Packing, STEP};

/// How far ahead weights are asked for, in bytes: what memory delivers while it answers.
const AHEAD: usize = 4096;
/// Bytes of a cache line.
const LINE: usize = 64;

/// 32 values of 16 rows, as in [`super::super::Step`].
#[derive(Clone, Copy)]
pub(in crate::quant) struct Step {
    pub(in crate::quant) numbers: [__m512i; 8],
    pub(in crate::quant) scales: [__m512; 2],
}

/// Minimums of a block of 16 rows, as in [`super::super::Minimums`].
#[derive(Clone, Copy)]
pub(in crate::quant) struct Minimums {
    pub(in crate::quant) pairs: [__m512i; MOST_PAIRS],
    pub(in crate::quant) unit: __m512,
}

/// Where steps come from: packed blocks, or blocks unpacked before.
pub(in crate::quant) trait Source {
    const BLOCK: usize;
    const GROUP: usize;
    const OFFSET: i32;
    const MINIMUMS: bool;
    const BYTES: usize;
    /// Whether the panel is read once and from memory.
    const FROM_MEMORY: bool;

    /// # Safety
    /// The CPU has what this module is compiled for.
    unsafe fn step(block: &[u8], step: usize) -> Step;

    /// # Safety
    /// As for `step`.
    unsafe fn minimums(block: &[u8]) -> Minimums;
}

/// Steps of packed blocks.
pub(in crate::quant) struct Packed<P>(PhantomData<P>);

impl<P: Packing> Source for Packed<P> {
    const BLOCK: usize = P::BLOCK;
    const GROUP: usize = P::GROUP;
    const OFFSET: i32 = P::OFFSET;
    const MINIMUMS: bool = P::MINIMUMS;
    const BYTES: usize = P::BYTES;
    const FROM_MEMORY: bool = true;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn step(block: &[u8], step: usize) -> Step {
        // SAFETY: the caller vouches for the CPU.
        unsafe { P::unpack_avx512(block, step) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn minimums(block: &[u8]) -> Minimums {
        // SAFETY: the caller vouches for the CPU.
        unsafe { P::minimums_avx512(block) }
    }
}

/// Runs only where [`super::kernels`] was given proof of the instruction set.
pub(super) fn rows<S: Source>(
    panel: &[u8],
    k: usize,
    x: &[i32],
    next: &[u8],
    out: &mut [[f32; PANEL]],
) {
    // SAFETY: `kernels` hands this function out for a detected instruction set only.
    unsafe { compiled::<S>(panel, k, x, next, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn compiled<S: Source>(panel: &[u8], k: usize, x: &[i32], next: &[u8], out: &mut [[f32; PANEL]]) {
    match out.len() {
        8 if next.is_empty() => tile::<S, 8, false>(panel, k, x, next, out),
        8 => tile::<S, 8, true>(panel, k, x, next, out),
        4 => tile::<S, 4, false>(panel, k, x, next, out),
        2 => tile::<S, 2, false>(panel, k, x, next, out),
        1 => tile::<S, 1, false>(panel, k, x, next, out),
        rows => unreachable!("a tile of {rows} rows"),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn tile<S: Source, const R: usize, const NEXT: bool>(
    panel: &[u8],
    k: usize,
    x: &[i32],
    next: &[u8],
    out: &mut [[f32; PANEL]],
) {
    let mut next = Next::new(next, k / STEP);
    let rows = Rows::<R>::new::<S>(x, k);
    let mut sums = [_mm512_setzero_ps(); R];
    for (sum, out) in sums.iter_mut().zip(&*out) {
        // SAFETY: there are 16 values.
        *sum = unsafe { _mm512_loadu_ps(out.as_ptr()) };
    }
    for (b, block) in panel[..k / S::BLOCK * S::BYTES].chunks_exact(S::BYTES).enumerate() {
        let mut parts = [_mm512_setzero_ps(); R];
        if S::MINIMUMS {
            take_off::<S, R>(block, &rows, b, &mut parts);
        }
        let lines = block.chunks(S::BYTES / (S::BLOCK / STEP));
        for (step, lines) in lines.enumerate() {
            if NEXT {
                next.ask();
            } else if S::FROM_MEMORY {
                ahead::<R>(lines);
            }
            // SAFETY: this function is compiled for all that sources ask for, so it runs only
            // where the CPU has that.
            let unpacked = unsafe { S::step(block, step) };
            add_step::<S, R>(&unpacked, &rows, b * S::BLOCK / STEP + step, &mut parts);
        }
        for r in 0..R {
            // SAFETY: `r < R`, and `panel` was cut to `k / BLOCK` blocks, each of which has a scale.
            let scale = unsafe { rows.word(r, rows.scales + b) };
            let scale = _mm512_set1_ps(f32::from_bits(scale as u32));
            sums[r] = _mm512_fmadd_ps(parts[r], scale, sums[r]);
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        // SAFETY: there is room for 16 values.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sum) };
    }
}

/// The products of 32 values of K.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
// Iterators over rows are not unrolled, and sums would lie in memory.
#[allow(clippy::needless_range_loop)]
fn add_step<S: Source, const R: usize>(
    unpacked: &Step,
    rows: &Rows<'_, R>,
    at: usize,
    parts: &mut [__m512; R],
) {
    for group in 0..STEP / S::GROUP {
        let mut sums = [_mm512_setzero_si512(); R];
        if S::OFFSET > 0 {
            for r in 0..R {
                // SAFETY: `r < R`, and `at` is one of the `k / 32` steps: blocks have equal ones,
                // as `quant::kind` checks. Each of their groups has a sum.
                let sum = unsafe { rows.word(r, rows.sums + at * (STEP / S::GROUP) + group) };
                let shift = _mm_cvtsi32_si128(S::OFFSET.trailing_zeros() as i32);
                sums[r] = _mm512_sll_epi32(_mm512_set1_epi32(sum), shift);
            }
        }
        for q in group * S::GROUP / 4..(group + 1) * S::GROUP / 4 {
            for r in 0..R {
                // SAFETY: `r < R`, and each of the `k / 32` steps has 8 words of numbers.
                let x = _mm512_set1_epi32(unsafe { rows.word(r, 8 * at + q) });
                sums[r] = _mm512_dpbusd_epi32(sums[r], unpacked.numbers[q], x);
            }
        }
        for r in 0..R {
            let sum = _mm512_cvtepi32_ps(sums[r]);
            parts[r] = _mm512_fmadd_ps(sum, unpacked.scales[group], parts[r]);
        }
    }
}

/// The minimums of block `b`: products of integers first, of which one instruction does two.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
// Iterators over rows are not unrolled, and sums would lie in memory.
#[allow(clippy::needless_range_loop)]
fn take_off<S: Source, const R: usize>(
    block: &[u8],
    rows: &Rows<'_, R>,
    b: usize,
    parts: &mut [__m512; R],
) {
    // SAFETY: this function is compiled for all that sources ask for, so it runs only where the CPU
    // has that.
    let minimums = unsafe { S::minimums(block) };
    let mut sums = [_mm512_setzero_si512(); R];
    let pairs = S::BLOCK / S::GROUP / 2;
    for i in 0..pairs {
        for r in 0..R {
            // SAFETY: `r < R`, and each pair of groups of the `k / BLOCK` blocks has a word.
            let x = _mm512_set1_epi32(unsafe { rows.word(r, rows.pairs + b * pairs + i) });
            sums[r] = _mm512_dpwssd_epi32(sums[r], minimums.pairs[i], x);
        }
    }
    for r in 0..R {
        if S::BLOCK == S::GROUP {
            // SAFETY: `r < R`, and each of the `k / BLOCK` groups has a sum.
            sums[r] = _mm512_set1_epi32(unsafe { rows.word(r, rows.sums + b) });
        }
        parts[r] = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[r]), minimums.unit);
    }
}

/// A tile of `R` rows of activations.
struct Rows<'a, const R: usize> {
    start: *const i32,
    /// Where scales, sums and pairs of these begin in a row.
    scales: usize,
    sums: usize,
    pairs: usize,
    words: PhantomData<&'a [i32]>,
}

impl<'a, const R: usize> Rows<'a, R> {
    fn new<S: Source>(x: &'a [i32], k: usize) -> Self {
        assert!(k.is_multiple_of(S::BLOCK), "whole blocks");
        let places = Places::of(k, S::BLOCK);
        assert_eq!(x.len(), R * places.end, "a tile of {R} rows");
        let (sums, pairs) = places.of_group(S::GROUP);
        Self { start: x.as_ptr(), scales: places.scales, sums, pairs, words: PhantomData }
    }

    /// Word `at` of row `r`.
    ///
    /// # Safety
    /// `r < R`, and `at` is inside the row.
    #[inline(always)]
    unsafe fn word(&self, r: usize, at: usize) -> i32 {
        // SAFETY: `new` checked that `R` whole rows are there, their words in turn, and borrowed
        // them; the caller stays inside.
        unsafe { self.start.wrapping_add(at * R + r).read() }
    }
}

/// Asks for lines further on. A lone row reads them once, so they need not go through the caches;
/// other tiles may come back to them.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::quant) fn ahead<const R: usize>(lines: &[u8]) {
    for line in (0..lines.len()).step_by(LINE) {
        let at = lines.as_ptr().wrapping_add(AHEAD + line).cast();
        if R == 1 { _mm_prefetch::<_MM_HINT_NTA>(at) } else { _mm_prefetch::<_MM_HINT_T0>(at) }
    }
}

/// Weights that come later, asked for a little at a time.
pub(in crate::quant) struct Next {
    line: *const u8,
    /// Lines that each step asks for.
    lines: usize,
}

impl Next {
    /// Asks for `bytes` in `steps` steps.
    #[inline]
    pub(in crate::quant) fn new(bytes: &[u8], steps: usize) -> Self {
        Self { line: bytes.as_ptr(), lines: bytes.len().div_ceil(LINE * steps) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(in crate::quant) fn ask(&mut self) {
        for _ in 0..self.lines {
            // The first-level cache has enough to do.
            _mm_prefetch::<_MM_HINT_T1>(self.line.cast());
            self.line = self.line.wrapping_add(LINE);
        }
    }
}

/// 16 half-precision numbers from `at` on.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::quant) fn halves(block: &[u8], at: usize) -> __m512 {
    let bytes: &[u8; 32] = block[at..at + 32].try_into().expect("16 numbers");
    // SAFETY: 32 bytes are there.
    let raw = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
    _mm512_cvtph_ps(raw)
}

/// 16 signed bytes from `at` on, as numbers.
#[inline]
#[target_feature(enable = "avx512f")]
pub(in crate::quant) fn bytes(block: &[u8], at: usize) -> __m512 {
    let bytes: &[u8; 16] = block[at..at + 16].try_into().expect("16 bytes");
    // SAFETY: 16 bytes are there.
    let raw = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(raw))
}

/// Nibbles of 4 vectors from `at` on, quads in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(in crate::quant) fn nibbles(block: &[u8], at: usize) -> [__m512i; 8] {
    let mask = _mm512_set1_epi8(15);
    let mut out = [_mm512_setzero_si512(); 8];
    for i in 0..4 {
        let both = vector(block, at + 64 * i);
        out[i] = _mm512_and_si512(both, mask);
        out[i + 4] = _mm512_and_si512(_mm512_srli_epi16::<4>(both), mask);
    }
    out
}

/// What a table has for the nibbles of 4 vectors from `at` on, quads in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(in crate::quant) fn levels(block: &[u8], at: usize, table: &[u8; 16]) -> [__m512i; 8] {
    // SAFETY: 16 bytes are there.
    let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
    let table = _mm512_broadcast_i32x4(table);
    nibbles(block, at).map(|number| _mm512_shuffle_epi8(table, number))
}
