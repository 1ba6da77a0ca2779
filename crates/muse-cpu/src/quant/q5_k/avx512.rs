//! Q5_K in vectors.

use std::arch::x86_64::*;

use super::{NUMBERS, SCALES};
use crate::quant::q4_k::avx512::scales;
use crate::quant::q5_0::avx512::numbers;
use crate::quant::rows::avx512::Step;

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) fn unpack(block: &[u8], step: usize) -> Step {
    let scales = [scales(&block[SCALES..], step), _mm512_setzero_ps()];
    Step { numbers: numbers(&block[NUMBERS * step..]), scales }
}
