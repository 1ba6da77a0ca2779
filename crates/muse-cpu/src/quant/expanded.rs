//! A panel unpacked to bytes once, for many activation rows: a step's numbers, scales and minimums
//! lie as the loop over K wants them.

use std::marker::PhantomData;

use super::Packing;
#[cfg(target_arch = "x86_64")]
use super::rows::avx512;
use super::{PANEL, STEP};

/// Unpacks a panel into `out`, which must have [`bytes`].
pub(crate) type Expand = fn(panel: &[u8], out: &mut [u8]);

/// Bytes of a step: numbers, two vectors of scales, two of minimums.
const STEP_BYTES: usize = 512 + 4 * 4 * PANEL;

/// Bytes of an unpacked panel of `k` values a row.
pub(crate) fn bytes(k: usize) -> usize {
    k / STEP * STEP_BYTES
}

/// Steps of a panel that [`expand`] wrote.
pub(super) struct Expanded<P>(PhantomData<P>);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::*;

    impl<P: Packing> avx512::Source for Expanded<P> {
        const BLOCK: usize = P::BLOCK;
        const GROUP: usize = P::GROUP;
        const OFFSET: i32 = P::OFFSET;
        const MINIMUMS: bool = P::MINIMUMS;
        const BYTES: usize = P::BLOCK / STEP * STEP_BYTES;
        const FROM_MEMORY: bool = false;

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        unsafe fn step(block: &[u8], step: usize) -> avx512::Step {
            let block = &block[step * STEP_BYTES..][..STEP_BYTES];
            let mut numbers = [_mm512_setzero_si512(); 8];
            for (q, numbers) in numbers.iter_mut().enumerate() {
                *numbers = avx512::vector(block, 64 * q);
            }
            let float = |at| _mm512_castsi512_ps(avx512::vector(block, at));
            avx512::Step {
                numbers,
                scales: [float(512), float(576)],
                minimums: [float(640), float(704)],
            }
        }
    }

    /// Runs only where the kernels that read its output run.
    pub(in crate::quant) fn expand<P: Packing>(panel: &[u8], out: &mut [u8]) {
        // SAFETY: handed out for a detected instruction set only.
        unsafe { compiled::<P>(panel, out) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn compiled<P: Packing>(panel: &[u8], out: &mut [u8]) {
        let mut out = out.chunks_exact_mut(STEP_BYTES);
        for block in panel.chunks_exact(P::BYTES) {
            for step in 0..P::BLOCK / STEP {
                let out = out.next().expect("room for every step");
                // SAFETY: this function is compiled for it.
                let step = unsafe { P::unpack_avx512(block, step) };
                for (out, vector) in out.chunks_exact_mut(64).zip(step.numbers) {
                    store(out, vector);
                }
                let floats = step.scales.into_iter().chain(step.minimums);
                for (out, vector) in out[512..].chunks_exact_mut(64).zip(floats) {
                    store(out, _mm512_castps_si512(vector));
                }
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(out: &mut [u8], vector: __m512i) {
        let out: &mut [u8; 64] = out.try_into().expect("a vector");
        // SAFETY: there is room for 64 bytes.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), vector) };
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::expand;
