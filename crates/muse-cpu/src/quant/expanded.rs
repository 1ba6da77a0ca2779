//! A panel unpacked to bytes once, for many activation rows: a step's numbers, scales and minimums
//! lie as the loop over K wants them.

use std::marker::PhantomData;

use super::Packing;
use super::STEP;
#[cfg(target_arch = "x86_64")]
use super::rows::avx512;

/// Unpacks a panel into `out`, which must have [`bytes`].
pub(crate) type Expand = fn(panel: &[u8], out: &mut [u8]);

/// Bytes of a vector.
const VECTOR: usize = 64;

/// The most bytes of an unpacked panel of `k` values a row.
pub(crate) fn bytes(k: usize) -> usize {
    k / STEP * (8 + 2 * 2) * VECTOR
}

/// Steps of a panel that [`expand`] wrote.
pub(super) struct Expanded<P>(PhantomData<P>);

impl<P: Packing> Expanded<P> {
    /// Groups of a step.
    const GROUPS: usize = STEP / P::GROUP;
    /// Where the vectors of scales are in a step, behind its numbers, and those of minimums.
    const SCALES: usize = 8 * VECTOR;
    const MINIMUMS: usize = Self::SCALES + Self::GROUPS * VECTOR;
    /// Bytes of a step.
    const STEP_BYTES: usize = Self::MINIMUMS + P::MINIMUMS as usize * Self::GROUPS * VECTOR;
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
        const BYTES: usize = P::BLOCK / STEP * Self::STEP_BYTES;
        const FROM_MEMORY: bool = false;

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        unsafe fn step(block: &[u8], step: usize) -> avx512::Step {
            let block = &block[step * Self::STEP_BYTES..][..Self::STEP_BYTES];
            let mut numbers = [_mm512_setzero_si512(); 8];
            for (q, numbers) in numbers.iter_mut().enumerate() {
                *numbers = avx512::vector(block, VECTOR * q);
            }
            let (mut scales, mut minimums) = ([_mm512_setzero_ps(); 2], [_mm512_setzero_ps(); 2]);
            for group in 0..Self::GROUPS {
                let float = |at| _mm512_castsi512_ps(avx512::vector(block, at + VECTOR * group));
                scales[group] = float(Self::SCALES);
                if P::MINIMUMS {
                    minimums[group] = float(Self::MINIMUMS);
                }
            }
            avx512::Step { numbers, scales, minimums }
        }
    }

    /// Runs only where the kernels that read its output run.
    pub(in crate::quant) fn expand<P: Packing>(panel: &[u8], out: &mut [u8]) {
        // SAFETY: `rows::kernels` hands this function out for levels with VNNI only.
        unsafe { compiled::<P>(panel, out) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn compiled<P: Packing>(panel: &[u8], out: &mut [u8]) {
        let mut out = out.chunks_exact_mut(Expanded::<P>::STEP_BYTES);
        for block in panel.chunks_exact(P::BYTES) {
            for step in 0..P::BLOCK / STEP {
                let out = out.next().expect("room for every step");
                // SAFETY: this function is compiled for all that `unpack_avx512` asks for, so it
                // runs only where the CPU has that.
                let step = unsafe { P::unpack_avx512(block, step) };
                for (q, numbers) in step.numbers.into_iter().enumerate() {
                    store(out, VECTOR * q, numbers);
                }
                for group in 0..Expanded::<P>::GROUPS {
                    let mut float = |at, vector| {
                        store(out, at + VECTOR * group, _mm512_castps_si512(vector));
                    };
                    float(Expanded::<P>::SCALES, step.scales[group]);
                    if P::MINIMUMS {
                        float(Expanded::<P>::MINIMUMS, step.minimums[group]);
                    }
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
