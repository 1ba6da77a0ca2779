//! Q5_K in vectors.

use std::arch::x86_64::*;

use super::{FIFTH, NUMBERS, SCALES};
use crate::quant::q4_k::avx512::scales;
use crate::quant::rows::avx512::{Step, nibbles};

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn unpack(block: &[u8], step: usize) -> Step {
    let (scales, minimums) = scales(&block[SCALES..], step);
    let block = &block[NUMBERS * step..][..NUMBERS];
    let mut numbers = nibbles(block, 0);
    for (number, fifth) in numbers.iter_mut().zip(block[FIFTH..].as_chunks::<8>().0) {
        let fifth = u64::from_le_bytes(*fifth);
        *number = _mm512_mask_add_epi8(*number, fifth, *number, _mm512_set1_epi8(16));
    }
    let zero = _mm512_setzero_ps();
    Step { numbers, scales: [scales, zero], minimums: [minimums, zero] }
}
