//! A panel unpacked to bytes once, for many activation rows: a step's numbers and scales lie as the
//! loop over K wants them, and behind the steps of a block its minimums.

use std::marker::PhantomData;

use super::Packing;
#[cfg(target_arch = "x86_64")]
use super::rows::avx512;
use super::{MOST_PAIRS, STEP};

/// Unpacks a panel into `out`, which must have [`bytes`].
pub(crate) type Expand = fn(panel: &[u8], out: &mut [u8]);

/// Bytes of a vector.
const VECTOR: usize = 64;

/// The most bytes of an unpacked panel of `k` values a row.
pub(crate) fn bytes(k: usize) -> usize {
    k / STEP * (8 + 2) * VECTOR + k / 256 * (MOST_PAIRS + 1) * VECTOR
}

/// Steps of a panel that [`expand`] wrote.
pub(super) struct Expanded<P>(PhantomData<P>);

impl<P: Packing> Expanded<P> {
    /// Groups of a step.
    const GROUPS: usize = STEP / P::GROUP;
    /// Where the vectors of scales are in a step, behind its numbers.
    const SCALES: usize = 8 * VECTOR;
    /// Bytes of a step.
    const STEP_BYTES: usize = Self::SCALES + Self::GROUPS * VECTOR;
    /// Where the vectors of minimums are in a block, and how many pairs there are.
    const MINIMUMS: usize = P::BLOCK / STEP * Self::STEP_BYTES;
    const PAIRS: usize = P::BLOCK / P::GROUP / 2;
    /// Bytes of a block.
    const BLOCK_BYTES: usize = Self::MINIMUMS + P::MINIMUMS as usize * (Self::PAIRS + 1) * VECTOR;
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::*;

    impl<P: Packing> avx512::Source for Expanded<P> {
        const BLOCK: usize = P::BLOCK;
        const GROUP: usize = P::GROUP;
        const OFFSET: i32 = P::OFFSET;
        const MINIMUMS: bool = P::MINIMUMS;
        const BYTES: usize = Self::BLOCK_BYTES;
        const FROM_MEMORY: bool = false;

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        unsafe fn step(block: &[u8], step: usize) -> avx512::Step {
            let block = &block[step * Self::STEP_BYTES..][..Self::STEP_BYTES];
            let mut numbers = [_mm512_setzero_si512(); 8];
            for (q, numbers) in numbers.iter_mut().enumerate() {
                *numbers = avx512::vector(block, VECTOR * q);
            }
            let mut scales = [_mm512_setzero_ps(); 2];
            for (group, scale) in scales.iter_mut().take(Self::GROUPS).enumerate() {
                *scale = _mm512_castsi512_ps(avx512::vector(block, Self::SCALES + VECTOR * group));
            }
            avx512::Step { numbers, scales }
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        unsafe fn minimums(block: &[u8]) -> avx512::Minimums {
            let mut pairs = [_mm512_setzero_si512(); MOST_PAIRS];
            let vector = |i| avx512::vector(block, Self::MINIMUMS + VECTOR * i);
            for (i, pair) in pairs.iter_mut().take(Self::PAIRS).enumerate() {
                *pair = vector(i);
            }
            avx512::Minimums { pairs, unit: _mm512_castsi512_ps(vector(Self::PAIRS)) }
        }
    }

    /// Runs only where the kernels that read its output run.
    pub(in crate::quant) fn expand<P: Packing>(panel: &[u8], out: &mut [u8]) {
        // SAFETY: `rows::kernels` hands this function out for levels with VNNI only.
        unsafe { compiled::<P>(panel, out) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn compiled<P: Packing>(panel: &[u8], out: &mut [u8]) {
        let blocks = panel.chunks_exact(P::BYTES);
        assert!(blocks.len() * Expanded::<P>::BLOCK_BYTES <= out.len(), "room for every block");
        for (block, out) in blocks.zip(out.chunks_exact_mut(Expanded::<P>::BLOCK_BYTES)) {
            for step in 0..P::BLOCK / STEP {
                let out = &mut out[Expanded::<P>::STEP_BYTES * step..];
                // SAFETY: this function is compiled for all that `unpack_avx512` asks for, so it
                // runs only where the CPU has that.
                let step = unsafe { P::unpack_avx512(block, step) };
                for (q, numbers) in step.numbers.into_iter().enumerate() {
                    store(out, VECTOR * q, numbers);
                }
                for (group, scales) in step.scales[..Expanded::<P>::GROUPS].iter().enumerate() {
                    let at = Expanded::<P>::SCALES + VECTOR * group;
                    store(out, at, _mm512_castps_si512(*scales));
                }
            }
            if P::MINIMUMS {
                // SAFETY: as above.
                let minimums = unsafe { P::minimums_avx512(block) };
                let out = &mut out[Expanded::<P>::MINIMUMS..];
                for (i, pair) in minimums.pairs[..Expanded::<P>::PAIRS].iter().enumerate() {
                    store(out, VECTOR * i, *pair);
                }
                let unit = _mm512_castps_si512(minimums.unit);
                store(out, VECTOR * Expanded::<P>::PAIRS, unit);
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(out: &mut [u8], at: usize, vector: __m512i) {
        let out: &mut [u8; VECTOR] = (&mut out[at..at + VECTOR]).try_into().expect("a vector");
        // SAFETY: there is room for 64 bytes.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), vector) };
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::expand;
