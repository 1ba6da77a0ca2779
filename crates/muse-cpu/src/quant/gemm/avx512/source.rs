//! Where the kernels read blocks of weights from.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use crate::quant::layout::{BlockVectors, GroupParam, PackedLayout};
use crate::quant::panel::avx512::QuantVectors;

/// Blocks that the kernels read: packed ones, or ones unpacked before.
pub(in crate::quant) trait BlockSource: BlockVectors {
    /// The packed layout of the weights.
    type Layout: PackedLayout;
    /// Bytes of a block.
    const BYTES: usize;
    /// Whether panels are read from memory, which prefetching speeds up.
    const FROM_MEMORY: bool;
}

/// Packed blocks.
pub(in crate::quant) struct Packed<L>(PhantomData<L>);

impl<L: PackedLayout> BlockSource for Packed<L> {
    type Layout = L;
    const BYTES: usize = L::BYTES;
    const FROM_MEMORY: bool = true;
}

impl<L: PackedLayout> BlockVectors for Packed<L> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn quant_vectors(block: &[u8], step: usize) -> QuantVectors {
        // SAFETY: the caller guarantees the CPU features.
        unsafe { L::quant_vectors(block, step) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn scale_vectors(block: &[u8], step: usize) -> [__m512; 2] {
        // SAFETY: the caller guarantees the CPU features.
        unsafe { L::scale_vectors(block, step) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn integer_pair_vector(block: &[u8], param: GroupParam, pair: usize) -> __m512i {
        // SAFETY: the caller guarantees the CPU features.
        unsafe { L::integer_pair_vector(block, param, pair) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn block_factor_vector(block: &[u8], param: GroupParam) -> __m512 {
        // SAFETY: the caller guarantees the CPU features.
        unsafe { L::block_factor_vector(block, param) }
    }
}
