//! 16 rows of a panel a vector, `vpdpbusd` for 4 numbers of each.

mod groups;
mod unpack;
mod whole;

use std::arch::x86_64::*;
use std::marker::PhantomData;

pub(in crate::quant) use unpack::*;

use crate::kernels::quantize::Places;
use crate::quant::{Of, PANEL, Packing, STEP, form};

/// How far ahead weights are asked for, in bytes: what memory delivers while it answers.
const AHEAD: usize = 4096;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Vectors of 32 numbers of 16 rows, four of each.
pub(in crate::quant) type Numbers = [__m512i; 8];

/// What [`Packing`] defines, in vectors; likewise asked for.
pub(in crate::quant) trait Vectors {
    /// See [`Packing::numbers`].
    ///
    /// # Safety
    /// The CPU has what this module is compiled for.
    unsafe fn number_vectors(block: &[u8], step: usize) -> Numbers;

    /// See [`Packing::scales`].
    ///
    /// # Safety
    /// The CPU has what this module is compiled for.
    unsafe fn scale_vectors(_block: &[u8], _step: usize) -> [__m512; 2] {
        unreachable!("whole scales")
    }

    /// See [`Packing::pair`].
    ///
    /// # Safety
    /// The CPU has what this module is compiled for.
    unsafe fn pair_vector(_block: &[u8], _of: Of, _pair: usize) -> __m512i {
        unreachable!("no whole scales")
    }

    /// See [`Packing::unit`].
    ///
    /// # Safety
    /// The CPU has what this module is compiled for.
    unsafe fn unit_vector(_block: &[u8], _of: Of) -> __m512 {
        unreachable!("no units")
    }
}

/// Where vectors come from: packed blocks, or blocks unpacked before.
pub(in crate::quant) trait Source: Vectors {
    /// What blocks are like.
    type Packing: Packing;
    /// Bytes of a block.
    const BYTES: usize;
    /// Whether the panel is read once and from memory.
    const FROM_MEMORY: bool;
}

/// Packed blocks.
pub(in crate::quant) struct Packed<P>(PhantomData<P>);

impl<P: Packing> Source for Packed<P> {
    type Packing = P;
    const BYTES: usize = P::BYTES;
    const FROM_MEMORY: bool = true;
}

impl<P: Packing> Vectors for Packed<P> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn number_vectors(block: &[u8], step: usize) -> Numbers {
        // SAFETY: the caller vouches for the CPU.
        unsafe { P::number_vectors(block, step) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], step: usize) -> [__m512; 2] {
        // SAFETY: the caller vouches for the CPU.
        unsafe { P::scale_vectors(block, step) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn pair_vector(block: &[u8], of: Of, pair: usize) -> __m512i {
        // SAFETY: the caller vouches for the CPU.
        unsafe { P::pair_vector(block, of, pair) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn unit_vector(block: &[u8], of: Of) -> __m512 {
        // SAFETY: the caller vouches for the CPU.
        unsafe { P::unit_vector(block, of) }
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
    let rows = Rows::<R>::new::<S>(x, k);
    let blocks = panel[..k / S::Packing::BLOCK * S::BYTES].chunks_exact(S::BYTES);
    let mut next = Next::new(next, k / STEP);
    let mut sums = [_mm512_setzero_ps(); R];
    for (sum, out) in sums.iter_mut().zip(&*out) {
        // SAFETY: there are 16 values.
        *sum = unsafe { _mm512_loadu_ps(out.as_ptr()) };
    }
    for (b, block) in blocks.enumerate() {
        let parts = if S::Packing::WHOLE {
            whole::products::<S, R, NEXT>(block, &rows, b, &mut next)
        } else {
            groups::products::<S, R, NEXT>(block, &rows, b, &mut next)
        };
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
        assert!(k.is_multiple_of(S::Packing::BLOCK), "whole blocks");
        let places = Places::of(k, form::<S::Packing>());
        assert_eq!(x.len(), R * places.end, "a tile of {R} rows");
        let (sums, pairs) = places.of_group(S::Packing::GROUP);
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

    /// Word `at` of each row in every lane.
    ///
    /// # Safety
    /// `at` is inside a row.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn every(&self, at: usize) -> [__m512i; R] {
        let mut words = [_mm512_setzero_si512(); R];
        for (r, word) in words.iter_mut().enumerate() {
            // SAFETY: `r < R`, and the caller stays inside.
            *word = _mm512_set1_epi32(unsafe { self.word(r, at) });
        }
        words
    }
}

/// Asks for what comes later while `lines` are multiplied, of so many steps.
#[inline]
#[target_feature(enable = "avx512f")]
fn look_ahead<S: Source, const R: usize, const NEXT: bool>(
    next: &mut Next,
    lines: &[u8],
    steps: usize,
) {
    if NEXT {
        (0..steps).for_each(|_| next.ask());
    } else if S::FROM_MEMORY {
        ahead::<R>(lines);
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

/// What comes later, asked for a little at a time.
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
