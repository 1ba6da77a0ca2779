//! The panel gemm in NEON: 4 weight rows per vector, 4 quants of each multiplied by one `sdot`. It
//! multiplies signed bytes: quants below 128 are signed bytes as they are, and quants with an
//! offset of 128 are multiplied without it.

use std::arch::aarch64::*;
use std::arch::asm;

use crate::quant::activations::Int8Row;
use crate::quant::layout::{
    GroupParam, PackedLayout, STEP, activation_layout, has_integer_minimums,
};
use crate::quant::panel::{PANEL_ROWS, Quants};

/// Vectors of a panel.
const QUARTERS: usize = PANEL_ROWS / 4;

/// `packed::kernels` returns it only for an [`crate::Isa`] that has these features.
pub(in crate::quant) fn gemm<L: PackedLayout>(
    panel: &[u8],
    k: usize,
    x: &[i32],
    _next: &[u8],
    out: &mut [[f32; PANEL_ROWS]],
) {
    // SAFETY: only `packed::kernels` names this function, for a detected instruction set that has
    // the features.
    unsafe { compiled::<L>(panel, k, x, out) }
}

#[target_feature(enable = "neon,dotprod")]
fn compiled<L: PackedLayout>(panel: &[u8], k: usize, x: &[i32], out: &mut [[f32; PANEL_ROWS]]) {
    let rows = out.len();
    let row = |r: usize| Int8Row::new(x, (r, rows), k, activation_layout::<L>(), L::GROUP);
    let mut done = 0;
    while done + 4 <= rows {
        tile::<L, 4>(panel, std::array::from_fn(|r| row(done + r)), &mut out[done..]);
        done += 4;
    }
    while done < rows {
        tile::<L, 1>(panel, [row(done)], &mut out[done..]);
        done += 1;
    }
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn tile<L: PackedLayout, const R: usize>(
    panel: &[u8],
    rows: [Int8Row<'_>; R],
    out: &mut [[f32; PANEL_ROWS]],
) {
    let mut sums = [[vdupq_n_f32(0.0); QUARTERS]; R];
    for (sums, out) in sums.iter_mut().zip(&*out) {
        for (sum, out) in sums.iter_mut().zip(out.as_chunks().0) {
            *sum = load_f32(out);
        }
    }
    for (b, block) in panel.chunks_exact(L::BYTES).enumerate() {
        let parts = if L::INTEGER_SCALES {
            integer_scales::<L, R>(block, &rows, b)
        } else {
            float_scales::<L, R>(block, &rows, b)
        };
        for ((row, parts), sums) in rows.iter().zip(parts).zip(&mut sums) {
            let scale = vdupq_n_f32(row.scale(b));
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum = vfmaq_f32(*sum, part, scale);
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        for (out, sum) in out.as_chunks_mut::<4>().0.iter_mut().zip(sums) {
            // SAFETY: the destination has 4 values.
            unsafe { vst1q_f32(out.as_mut_ptr(), sum) };
        }
    }
}

/// The products of block `b` with float scales, group after group.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn float_scales<L: PackedLayout, const R: usize>(
    block: &[u8],
    rows: &[Int8Row<'_>; R],
    b: usize,
) -> [[float32x4_t; QUARTERS]; R] {
    let mut parts = minimums::<L, R>(block, rows, b);
    for step in 0..L::BLOCK / STEP {
        let (quants, scales) = (L::quants(block, step), L::scales(block, step));
        for (row, parts) in rows.iter().zip(&mut parts) {
            for (i, scales) in scales.iter().take(STEP / L::GROUP).enumerate() {
                let sums = sums::<L>(&quants, row, (b * L::BLOCK + step * STEP) / L::GROUP + i);
                for ((part, sum), scale) in parts.iter_mut().zip(sums).zip(scales.as_chunks().0) {
                    *part = vfmaq_f32(*part, vcvtq_f32_s32(sum), load_f32(scale));
                }
            }
        }
    }
    parts
}

/// The products of block `b` with integer scales.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn integer_scales<L: PackedLayout, const R: usize>(
    block: &[u8],
    rows: &[Int8Row<'_>; R],
    b: usize,
) -> [[float32x4_t; QUARTERS]; R] {
    let mut products = [[vdupq_n_s32(0); QUARTERS]; R];
    let groups = L::BLOCK / L::GROUP;
    for i in 0..groups {
        let quants = L::quants(block, i * L::GROUP / STEP);
        let scales = integers_of(&L::integer_pair(block, GroupParam::Scale, i / 2), i);
        for (row, products) in rows.iter().zip(&mut products) {
            let sums = sums::<L>(&quants, row, b * groups + i);
            for ((product, sum), scale) in products.iter_mut().zip(sums).zip(scales) {
                *product = vmlaq_s32(*product, sum, scale);
            }
        }
    }
    let mut parts = minimums::<L, R>(block, rows, b);
    let factor = L::block_factor(block, GroupParam::Scale);
    for (parts, products) in parts.iter_mut().zip(products) {
        for ((part, sum), factor) in parts.iter_mut().zip(products).zip(factor.as_chunks().0) {
            *part = vfmaq_f32(*part, vcvtq_f32_s32(sum), load_f32(factor));
        }
    }
    parts
}

/// Minus the minimums of block `b` times the sums of the activations.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn minimums<L: PackedLayout, const R: usize>(
    block: &[u8],
    rows: &[Int8Row<'_>; R],
    b: usize,
) -> [[float32x4_t; QUARTERS]; R] {
    let mut parts = [[vdupq_n_f32(0.0); QUARTERS]; R];
    if !L::HAS_MINIMUMS {
        return parts;
    }
    let groups = L::BLOCK / L::GROUP;
    let mut sums = [[vdupq_n_s32(0); QUARTERS]; R];
    for i in 0..groups {
        let integers = match has_integer_minimums::<L>() {
            true => integers_of(&L::integer_pair(block, GroupParam::Minimum, i / 2), i),
            false => [vdupq_n_s32(1); QUARTERS],
        };
        for (row, sums) in rows.iter().zip(&mut sums) {
            for (sum, integer) in sums.iter_mut().zip(integers) {
                *sum = vmlaq_n_s32(*sum, integer, row.negated_sum(b * groups + i));
            }
        }
    }
    let factor = L::block_factor(block, GroupParam::Minimum);
    for (parts, sums) in parts.iter_mut().zip(sums) {
        for ((part, sum), factor) in parts.iter_mut().zip(sums).zip(factor.as_chunks().0) {
            *part = vmulq_f32(vcvtq_f32_s32(sum), load_f32(factor));
        }
    }
    parts
}

/// The sums of products of a group.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sums<L: PackedLayout>(
    quants: &Quants,
    row: &Int8Row<'_>,
    group: usize,
) -> [int32x4_t; QUARTERS] {
    // Quants with an offset of 128 are multiplied without it.
    let start = if L::OFFSET == 128 { 0 } else { L::OFFSET * row.negated_sum(group) };
    let mut sums = [vdupq_n_s32(start); QUARTERS];
    let first = group * L::GROUP / 4;
    for quad in first..first + L::GROUP / 4 {
        let x = vreinterpretq_s8_s32(vdupq_n_s32(row.quants(quad)));
        for (sum, w) in sums.iter_mut().zip(quants[quad % 8].as_chunks::<16>().0) {
            // SAFETY: the reference covers 16 bytes.
            let w = unsafe { vld1q_u8(w.as_ptr()) };
            let w = if L::OFFSET == 128 { veorq_u8(w, vdupq_n_u8(128)) } else { w };
            *sum = dot(*sum, vreinterpretq_s8_u8(w), x);
        }
    }
    sums
}

/// The integers of a group of a pair, sign-extended.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn integers_of(pairs: &[u32; PANEL_ROWS], group: usize) -> [int32x4_t; QUARTERS] {
    std::array::from_fn(|quarter| {
        let pairs: &[u32; 4] = &pairs.as_chunks().0[quarter];
        // SAFETY: the reference covers 4 words.
        let pairs = vreinterpretq_s32_u32(unsafe { vld1q_u32(pairs.as_ptr()) });
        let high = if group.is_multiple_of(2) { vshlq_n_s32::<16>(pairs) } else { pairs };
        vshrq_n_s32::<16>(high)
    })
}

/// Adds the dot product of 4 signed bytes to each lane. The intrinsic for the instruction is not
/// stable.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot(mut sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: the instruction reads and writes only the named registers, and this function runs
    // only on CPUs that have it.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {w:v}.16b, {x:v}.16b",
            sum = inout(vreg) sum,
            w = in(vreg) w,
            x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sum
}

#[inline]
#[target_feature(enable = "neon")]
fn load_f32(from: &[f32; 4]) -> float32x4_t {
    // SAFETY: the reference covers 4 values.
    unsafe { vld1q_f32(from.as_ptr()) }
}
