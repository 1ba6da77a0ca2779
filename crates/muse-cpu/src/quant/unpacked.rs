//! A panel whose quants are unpacked to bytes once, for many activation rows. Quants and scales lie
//! in the order in which the loop over K reads them; integer scales, minimums and their factors
//! follow the steps of each block.

use std::marker::PhantomData;

use super::layout::{GroupParam, MAX_GROUP_PAIRS, PackedLayout, STEP};
use super::panel::VECTOR_BYTES;

/// Unpacks a panel into `out`, which must have at least [`bytes`] bytes.
pub(crate) type Unpack = fn(panel: &[u8], out: &mut [u8]);

/// An upper bound of the bytes of an unpacked panel of rows of `k` values, for any layout.
pub(crate) fn bytes(k: usize) -> usize {
    k / STEP * (8 + 2) * VECTOR_BYTES + k / 256 * (MAX_GROUP_PAIRS + 1) * VECTOR_BYTES
}

/// Blocks that [`unpack`] wrote.
pub(super) struct Unpacked<L>(PhantomData<L>);

impl<L: PackedLayout> Unpacked<L> {
    /// Vectors of scales of a step, unless scales are integers.
    const SCALES: usize = if L::INTEGER_SCALES { 0 } else { STEP / L::GROUP };
    /// Bytes of a step: quants, scales.
    const STEP_BYTES: usize = (8 + Self::SCALES) * VECTOR_BYTES;
    /// Pairs of groups of a block; 0 where a block is one group.
    const PAIRS: usize = L::BLOCK / L::GROUP / 2;
    /// Offsets of integer scales and of minimums in a block: the integers of all pairs, the factor.
    const SCALES_AT: usize = L::BLOCK / STEP * Self::STEP_BYTES;
    const MINIMUMS_AT: usize = Self::SCALES_AT + Self::param_bytes(GroupParam::Scale);
    /// Bytes of a block.
    const BLOCK_BYTES: usize = Self::MINIMUMS_AT + Self::param_bytes(GroupParam::Minimum);

    /// Whether a block stores a parameter after its steps.
    const fn has(param: GroupParam) -> bool {
        match param {
            GroupParam::Scale => L::INTEGER_SCALES,
            GroupParam::Minimum => L::HAS_MINIMUMS,
        }
    }

    const fn param_bytes(param: GroupParam) -> usize {
        Self::has(param) as usize * (Self::PAIRS + 1) * VECTOR_BYTES
    }

    const fn at(param: GroupParam) -> usize {
        match param {
            GroupParam::Scale => Self::SCALES_AT,
            GroupParam::Minimum => Self::MINIMUMS_AT,
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::*;
    use crate::quant::gemm::avx512::BlockSource;
    use crate::quant::layout::BlockVectors;
    use crate::quant::panel::avx512::{QuantVectors, load_vector};

    impl<L: PackedLayout> BlockSource for Unpacked<L> {
        type Layout = L;
        const BYTES: usize = Self::BLOCK_BYTES;
        const FROM_MEMORY: bool = false;
    }

    impl<L: PackedLayout> BlockVectors for Unpacked<L> {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        unsafe fn quant_vectors(block: &[u8], step: usize) -> QuantVectors {
            let mut quants = [_mm512_setzero_si512(); 8];
            for (q, quants) in quants.iter_mut().enumerate() {
                *quants = load_vector(block, step * Self::STEP_BYTES + VECTOR_BYTES * q);
            }
            quants
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        unsafe fn scale_vectors(block: &[u8], step: usize) -> [__m512; 2] {
            let mut scales = [_mm512_setzero_ps(); 2];
            for (group, scale) in scales.iter_mut().take(Self::SCALES).enumerate() {
                let at = step * Self::STEP_BYTES + VECTOR_BYTES * (8 + group);
                *scale = _mm512_castsi512_ps(load_vector(block, at));
            }
            scales
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        unsafe fn integer_pair_vector(block: &[u8], param: GroupParam, pair: usize) -> __m512i {
            load_vector(block, Self::at(param) + VECTOR_BYTES * pair)
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
        unsafe fn block_factor_vector(block: &[u8], param: GroupParam) -> __m512 {
            _mm512_castsi512_ps(load_vector(block, Self::at(param) + VECTOR_BYTES * Self::PAIRS))
        }
    }

    /// `packed::kernels` returns it only for an [`crate::Isa`] with VNNI.
    pub(in crate::quant) fn unpack<L: PackedLayout>(panel: &[u8], out: &mut [u8]) {
        // SAFETY: only `packed::kernels` names this function, for levels with VNNI, which have all
        // these features.
        unsafe { compiled::<L>(panel, out) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn compiled<L: PackedLayout>(panel: &[u8], out: &mut [u8]) {
        let blocks = panel.chunks_exact(L::BYTES);
        assert!(blocks.len() * Unpacked::<L>::BLOCK_BYTES <= out.len(), "bytes of all blocks");
        for (block, out) in blocks.zip(out.chunks_exact_mut(Unpacked::<L>::BLOCK_BYTES)) {
            for step in 0..L::BLOCK / STEP {
                let at = Unpacked::<L>::STEP_BYTES * step;
                // SAFETY: this function is compiled with the features that `BlockVectors` requires,
                // so it runs only where the CPU has them.
                let quants = unsafe { L::quant_vectors(block, step) };
                for (q, quants) in quants.into_iter().enumerate() {
                    store(out, at + VECTOR_BYTES * q, quants);
                }
                if !L::INTEGER_SCALES {
                    // SAFETY: as above.
                    let scales = unsafe { L::scale_vectors(block, step) };
                    for (group, scale) in scales[..Unpacked::<L>::SCALES].iter().enumerate() {
                        store(out, at + VECTOR_BYTES * (8 + group), _mm512_castps_si512(*scale));
                    }
                }
            }
            for param in [GroupParam::Scale, GroupParam::Minimum] {
                let (at, pairs) = (Unpacked::<L>::at(param), Unpacked::<L>::PAIRS);
                if Unpacked::<L>::has(param) {
                    for pair in 0..pairs {
                        // SAFETY: as above.
                        let integers = unsafe { L::integer_pair_vector(block, param, pair) };
                        store(out, at + VECTOR_BYTES * pair, integers);
                    }
                    // SAFETY: as above.
                    let factor = unsafe { L::block_factor_vector(block, param) };
                    store(out, at + VECTOR_BYTES * pairs, _mm512_castps_si512(factor));
                }
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(out: &mut [u8], at: usize, vector: __m512i) {
        let out: &mut [u8; VECTOR_BYTES] =
            (&mut out[at..at + VECTOR_BYTES]).try_into().expect("64 bytes");
        // SAFETY: the array has 64 bytes.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), vector) };
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::unpack;
