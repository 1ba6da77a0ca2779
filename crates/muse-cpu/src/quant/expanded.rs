//! A panel unpacked to bytes once, for many activation rows: numbers and scales lie as the loop over K
//! wants them, and behind the steps of a block what is whole, and minimums.

use std::marker::PhantomData;

use super::{MOST_PAIRS, Of, Packing, STEP};

/// Unpacks a panel into `out`, which must have [`bytes`].
pub(crate) type Expand = fn(panel: &[u8], out: &mut [u8]);

/// Bytes of a vector.
const VECTOR: usize = 64;

/// The most bytes of an unpacked panel of `k` values a row.
pub(crate) fn bytes(k: usize) -> usize {
    k / STEP * (8 + 2) * VECTOR + k / 256 * (MOST_PAIRS + 1) * VECTOR
}

/// Blocks that [`expand`] wrote.
pub(super) struct Expanded<P>(PhantomData<P>);

impl<P: Packing> Expanded<P> {
    /// Vectors of scales of a step, where they are not whole.
    const SCALES: usize = if P::WHOLE { 0 } else { STEP / P::GROUP };
    /// Bytes of a step: numbers, scales.
    const STEP_BYTES: usize = (8 + Self::SCALES) * VECTOR;
    /// Pairs of groups of a block; none where it is one.
    const PAIRS: usize = P::BLOCK / P::GROUP / 2;
    /// Where scales and minimums are in a block, behind its steps: pairs, units.
    const SCALES_AT: usize = P::BLOCK / STEP * Self::STEP_BYTES;
    const MINIMUMS_AT: usize = Self::SCALES_AT + Self::multiples_bytes(Of::Scales);
    /// Bytes of a block.
    const BLOCK_BYTES: usize = Self::MINIMUMS_AT + Self::multiples_bytes(Of::Minimums);

    /// Whether a block has multiples of these, and a unit.
    const fn has(of: Of) -> bool {
        match of {
            Of::Scales => P::WHOLE,
            Of::Minimums => P::MINIMUMS,
        }
    }

    const fn multiples_bytes(of: Of) -> usize {
        Self::has(of) as usize * (Self::PAIRS + 1) * VECTOR
    }

    const fn at(of: Of) -> usize {
        match of {
            Of::Scales => Self::SCALES_AT,
            Of::Minimums => Self::MINIMUMS_AT,
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::*;
    use crate::quant::rows::avx512::{Numbers, Source, Vectors, vector};

    impl<P: Packing> Source for Expanded<P> {
        type Packing = P;
        const BYTES: usize = Self::BLOCK_BYTES;
        const FROM_MEMORY: bool = false;
    }

    impl<P: Packing> Vectors for Expanded<P> {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        unsafe fn number_vectors(block: &[u8], step: usize) -> Numbers {
            let mut numbers = [_mm512_setzero_si512(); 8];
            for (q, numbers) in numbers.iter_mut().enumerate() {
                *numbers = vector(block, step * Self::STEP_BYTES + VECTOR * q);
            }
            numbers
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        unsafe fn scale_vectors(block: &[u8], step: usize) -> [__m512; 2] {
            let mut scales = [_mm512_setzero_ps(); 2];
            for (group, scale) in scales.iter_mut().take(Self::SCALES).enumerate() {
                let at = step * Self::STEP_BYTES + VECTOR * (8 + group);
                *scale = _mm512_castsi512_ps(vector(block, at));
            }
            scales
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        unsafe fn pair_vector(block: &[u8], of: Of, pair: usize) -> __m512i {
            vector(block, Self::at(of) + VECTOR * pair)
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        unsafe fn unit_vector(block: &[u8], of: Of) -> __m512 {
            _mm512_castsi512_ps(vector(block, Self::at(of) + VECTOR * Self::PAIRS))
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
                let at = Expanded::<P>::STEP_BYTES * step;
                // SAFETY: this function is compiled for all that vectors ask for, so it runs only
                // where the CPU has that.
                let numbers = unsafe { P::number_vectors(block, step) };
                for (q, numbers) in numbers.into_iter().enumerate() {
                    store(out, at + VECTOR * q, numbers);
                }
                if !P::WHOLE {
                    // SAFETY: as above.
                    let scales = unsafe { P::scale_vectors(block, step) };
                    for (group, scale) in scales[..Expanded::<P>::SCALES].iter().enumerate() {
                        store(out, at + VECTOR * (8 + group), _mm512_castps_si512(*scale));
                    }
                }
            }
            for of in [Of::Scales, Of::Minimums] {
                let (at, pairs) = (Expanded::<P>::at(of), Expanded::<P>::PAIRS);
                if Expanded::<P>::has(of) {
                    for pair in 0..pairs {
                        // SAFETY: as above.
                        let multiples = unsafe { P::pair_vector(block, of, pair) };
                        store(out, at + VECTOR * pair, multiples);
                    }
                    // SAFETY: as above.
                    let unit = unsafe { P::unit_vector(block, of) };
                    store(out, at + VECTOR * pairs, _mm512_castps_si512(unit));
                }
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
