//! Q4_0 in vectors.

use std::arch::x86_64::*;

use super::SCALES;
use crate::quant::rows::avx512::{Step, halves, nibbles};

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn unpack(block: &[u8], _: usize) -> Step {
    let zero = _mm512_setzero_ps();
    let scales = [halves(block, SCALES), zero];
    Step { numbers: nibbles(block, 0), scales }
}
