//! The panel gemm in AVX-512: 16 weight rows per vector, 4 quants of each multiplied by one
//! `vpdpbusd`.

mod float_scales;
mod integer_scales;
mod prefetch;
mod source;
mod tile;

use std::arch::x86_64::*;

pub(in crate::quant) use prefetch::{Prefetcher, prefetch_ahead};
pub(in crate::quant) use source::{BlockSource, Packed};

use crate::quant::layout::{PackedLayout, STEP};
use crate::quant::panel::PANEL_ROWS;
use tile::ActivationTile;

/// `packed::kernels` returns it only for an [`crate::Isa`] with VNNI.
pub(in crate::quant) fn gemm<S: BlockSource>(
    panel: &[u8],
    k: usize,
    x: &[i32],
    next: &[u8],
    out: &mut [[f32; PANEL_ROWS]],
) {
    // SAFETY: only `packed::kernels` names this function, for levels with VNNI, which have all
    // these features.
    unsafe { compiled::<S>(panel, k, x, next, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn compiled<S: BlockSource>(
    panel: &[u8],
    k: usize,
    x: &[i32],
    next: &[u8],
    out: &mut [[f32; PANEL_ROWS]],
) {
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
fn tile<S: BlockSource, const R: usize, const NEXT: bool>(
    panel: &[u8],
    k: usize,
    x: &[i32],
    next: &[u8],
    out: &mut [[f32; PANEL_ROWS]],
) {
    let x = ActivationTile::<R>::new::<S>(x, k);
    let blocks = panel[..k / S::Layout::BLOCK * S::BYTES].chunks_exact(S::BYTES);
    let mut next = Prefetcher::new(next, k / STEP);
    let mut sums = [_mm512_setzero_ps(); R];
    for (sum, out) in sums.iter_mut().zip(&*out) {
        // SAFETY: the slice has 16 values.
        *sum = unsafe { _mm512_loadu_ps(out.as_ptr()) };
    }
    for (b, block) in blocks.enumerate() {
        let parts = if S::Layout::INTEGER_SCALES {
            integer_scales::products::<S, R, NEXT>(block, &x, b, &mut next)
        } else {
            float_scales::products::<S, R, NEXT>(block, &x, b, &mut next)
        };
        for r in 0..R {
            // SAFETY: `r < R`, and `panel` was cut to `k / BLOCK` blocks, each of which has a
            // scale.
            let scale = unsafe { x.word(r, x.scales + b) };
            let scale = _mm512_set1_ps(f32::from_bits(scale as u32));
            sums[r] = _mm512_fmadd_ps(parts[r], scale, sums[r]);
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        // SAFETY: the destination has 16 values.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sum) };
    }
}
