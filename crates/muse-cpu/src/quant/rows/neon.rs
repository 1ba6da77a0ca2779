//! 4 rows of a panel a vector, `sdot` for 4 numbers of each. It multiplies signed bytes: numbers
//! below 128 are such, and those with an offset of 128 become such without it.

use std::arch::aarch64::*;
use std::arch::asm;

use crate::quant::activations::Row;
use crate::quant::panel::Numbers;
use crate::quant::{Of, PANEL, Packing, STEP, form, several};

/// Vectors of a panel.
const QUARTERS: usize = PANEL / 4;

/// Runs only where [`super::kernels`] was given proof of the instruction set.
pub(super) fn rows<P: Packing>(
    panel: &[u8],
    k: usize,
    tile: &[i32],
    _next: &[u8],
    out: &mut [[f32; PANEL]],
) {
    // SAFETY: `kernels` hands this function out for a detected instruction set only.
    unsafe { compiled::<P>(panel, k, tile, out) }
}

#[target_feature(enable = "neon,dotprod")]
fn compiled<P: Packing>(panel: &[u8], k: usize, tile: &[i32], out: &mut [[f32; PANEL]]) {
    let rows = out.len();
    let row = |r: usize| Row::of(tile, (r, rows), k, form::<P>(), P::GROUP);
    let mut done = 0;
    while done + 4 <= rows {
        few::<P, 4>(panel, std::array::from_fn(|r| row(done + r)), &mut out[done..]);
        done += 4;
    }
    while done < rows {
        few::<P, 1>(panel, [row(done)], &mut out[done..]);
        done += 1;
    }
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn few<P: Packing, const R: usize>(panel: &[u8], rows: [Row<'_>; R], out: &mut [[f32; PANEL]]) {
    let mut sums = [[vdupq_n_f32(0.0); QUARTERS]; R];
    for (sums, out) in sums.iter_mut().zip(&*out) {
        for (sum, out) in sums.iter_mut().zip(out.as_chunks().0) {
            *sum = load_f32(out);
        }
    }
    for (b, block) in panel.chunks_exact(P::BYTES).enumerate() {
        let parts =
            if P::WHOLE { whole::<P, R>(block, &rows, b) } else { groups::<P, R>(block, &rows, b) };
        for ((row, parts), sums) in rows.iter().zip(parts).zip(&mut sums) {
            let scale = vdupq_n_f32(row.scale(b));
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum = vfmaq_f32(*sum, part, scale);
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        for (out, sum) in out.as_chunks_mut::<4>().0.iter_mut().zip(sums) {
            // SAFETY: there is room for 4 values.
            unsafe { vst1q_f32(out.as_mut_ptr(), sum) };
        }
    }
}

/// The products of block `b`, group after group.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn groups<P: Packing, const R: usize>(
    block: &[u8],
    rows: &[Row<'_>; R],
    b: usize,
) -> [[float32x4_t; QUARTERS]; R] {
    let mut parts = minimums::<P, R>(block, rows, b);
    for step in 0..P::BLOCK / STEP {
        let (numbers, scales) = (P::numbers(block, step), P::scales(block, step));
        for (row, parts) in rows.iter().zip(&mut parts) {
            for (i, scales) in scales.iter().take(STEP / P::GROUP).enumerate() {
                let sums = sums::<P>(&numbers, row, (b * P::BLOCK + step * STEP) / P::GROUP + i);
                for ((part, sum), scale) in parts.iter_mut().zip(sums).zip(scales.as_chunks().0) {
                    *part = vfmaq_f32(*part, vcvtq_f32_s32(sum), load_f32(scale));
                }
            }
        }
    }
    parts
}

/// The products of block `b`, whose scales are whole.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn whole<P: Packing, const R: usize>(
    block: &[u8],
    rows: &[Row<'_>; R],
    b: usize,
) -> [[float32x4_t; QUARTERS]; R] {
    let mut products = [[vdupq_n_s32(0); QUARTERS]; R];
    let groups = P::BLOCK / P::GROUP;
    for i in 0..groups {
        let numbers = P::numbers(block, i * P::GROUP / STEP);
        let scales = multiples(&P::pair(block, Of::Scales, i / 2), i);
        for (row, products) in rows.iter().zip(&mut products) {
            let sums = sums::<P>(&numbers, row, b * groups + i);
            for ((product, sum), scale) in products.iter_mut().zip(sums).zip(scales) {
                *product = vmlaq_s32(*product, sum, scale);
            }
        }
    }
    let mut parts = minimums::<P, R>(block, rows, b);
    let unit = P::unit(block, Of::Scales);
    for (parts, products) in parts.iter_mut().zip(products) {
        for ((part, sum), unit) in parts.iter_mut().zip(products).zip(unit.as_chunks().0) {
            *part = vfmaq_f32(*part, vcvtq_f32_s32(sum), load_f32(unit));
        }
    }
    parts
}

/// The minimums of block `b`, if there are any.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn minimums<P: Packing, const R: usize>(
    block: &[u8],
    rows: &[Row<'_>; R],
    b: usize,
) -> [[float32x4_t; QUARTERS]; R] {
    let mut parts = [[vdupq_n_f32(0.0); QUARTERS]; R];
    if !P::MINIMUMS {
        return parts;
    }
    let groups = P::BLOCK / P::GROUP;
    let mut sums = [[vdupq_n_s32(0); QUARTERS]; R];
    for i in 0..groups {
        let multiples = match several::<P>() {
            true => multiples(&P::pair(block, Of::Minimums, i / 2), i),
            false => [vdupq_n_s32(1); QUARTERS],
        };
        for (row, sums) in rows.iter().zip(&mut sums) {
            for (sum, multiple) in sums.iter_mut().zip(multiples) {
                *sum = vmlaq_n_s32(*sum, multiple, row.sum(b * groups + i));
            }
        }
    }
    let unit = P::unit(block, Of::Minimums);
    for (parts, sums) in parts.iter_mut().zip(sums) {
        for ((part, sum), unit) in parts.iter_mut().zip(sums).zip(unit.as_chunks().0) {
            *part = vmulq_f32(vcvtq_f32_s32(sum), load_f32(unit));
        }
    }
    parts
}

/// The products of a group.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sums<P: Packing>(numbers: &Numbers, row: &Row<'_>, group: usize) -> [int32x4_t; QUARTERS] {
    // What is signed carries the offset of 128.
    let start = if P::OFFSET == 128 { 0 } else { P::OFFSET * row.sum(group) };
    let mut sums = [vdupq_n_s32(start); QUARTERS];
    let first = group * P::GROUP / 4;
    for quad in first..first + P::GROUP / 4 {
        let x = vreinterpretq_s8_s32(vdupq_n_s32(row.numbers(quad)));
        for (sum, w) in sums.iter_mut().zip(numbers[quad % 8].as_chunks::<16>().0) {
            // SAFETY: 16 bytes are there.
            let w = unsafe { vld1q_u8(w.as_ptr()) };
            let w = if P::OFFSET == 128 { veorq_u8(w, vdupq_n_u8(128)) } else { w };
            *sum = dot(*sum, vreinterpretq_s8_u8(w), x);
        }
    }
    sums
}

/// The multiples of a group of a pair.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn multiples(pairs: &[u32; PANEL], group: usize) -> [int32x4_t; QUARTERS] {
    std::array::from_fn(|quarter| {
        let pairs: &[u32; 4] = &pairs.as_chunks().0[quarter];
        // SAFETY: 4 words are there.
        let pairs = vreinterpretq_s32_u32(unsafe { vld1q_u32(pairs.as_ptr()) });
        let high = if group.is_multiple_of(2) { vshlq_n_s32::<16>(pairs) } else { pairs };
        vshrq_n_s32::<16>(high)
    })
}

/// Adds the products of 4 bytes to each lane. The standard library's own name for the instruction
/// is not stable.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot(mut sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: the instruction only reads and writes the registers named; this function is compiled
    // for CPUs that have it.
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
    // SAFETY: 4 values are there.
    unsafe { vld1q_f32(from.as_ptr()) }
}
