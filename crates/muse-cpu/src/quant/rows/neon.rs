//! 4 rows of a panel a vector, `sdot` for 4 numbers of each. It multiplies signed bytes: numbers
//! below 128 are such, and those with an offset of 128 become such without it.

use std::arch::aarch64::*;
use std::arch::asm;

use crate::quant::activations::Row;
use crate::quant::{Minimums, PANEL, Packing, STEP, Step};

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
    let row = |r: usize| Row::of(tile, (r, rows), k, P::BLOCK, P::GROUP);
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
        let mut parts = [[vdupq_n_f32(0.0); QUARTERS]; R];
        if P::MINIMUMS {
            let minimums = P::minimums(block);
            for (row, parts) in rows.iter().zip(&mut parts) {
                *parts = std::array::from_fn(|quarter| take_off::<P>(&minimums, row, b, quarter));
            }
        }
        for step in 0..P::BLOCK / STEP {
            let unpacked = P::unpack(block, step);
            for (row, parts) in rows.iter().zip(&mut parts) {
                add_step::<P>(&unpacked, row, b * P::BLOCK / STEP + step, parts);
            }
        }
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

/// The products of 32 values of K.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_step<P: Packing>(
    unpacked: &Step,
    row: &Row<'_>,
    at: usize,
    parts: &mut [float32x4_t; QUARTERS],
) {
    for group in 0..STEP / P::GROUP {
        let minus = row.sum(at * STEP / P::GROUP + group);
        // What is signed carries the offset of 128.
        let start = if P::OFFSET == 128 { 0 } else { P::OFFSET * minus };
        let mut sums = [vdupq_n_s32(start); QUARTERS];
        for q in group * P::GROUP / 4..(group + 1) * P::GROUP / 4 {
            let x = vreinterpretq_s8_s32(vdupq_n_s32(row.numbers(8 * at + q)));
            for (sum, w) in sums.iter_mut().zip(unpacked.numbers[q].as_chunks::<16>().0) {
                // SAFETY: 16 bytes are there.
                let w = unsafe { vld1q_u8(w.as_ptr()) };
                let w = if P::OFFSET == 128 { veorq_u8(w, vdupq_n_u8(128)) } else { w };
                *sum = dot(*sum, vreinterpretq_s8_u8(w), x);
            }
        }
        for (quarter, (part, sum)) in parts.iter_mut().zip(sums).enumerate() {
            let scale = load_f32(&unpacked.scales[group].as_chunks().0[quarter]);
            *part = vfmaq_f32(*part, vcvtq_f32_s32(sum), scale);
        }
    }
}

/// The minimums of block `b` of a quarter of the rows of the panel.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn take_off<P: Packing>(
    minimums: &Minimums,
    row: &Row<'_>,
    b: usize,
    quarter: usize,
) -> float32x4_t {
    let groups = P::BLOCK / P::GROUP;
    let mut sum = vdupq_n_s32(0);
    for (i, numbers) in minimums.pairs.iter().take(groups / 2).enumerate() {
        let numbers: &[u32; 4] = &numbers.as_chunks().0[quarter];
        // SAFETY: 4 words are there.
        let both = vreinterpretq_s32_u32(unsafe { vld1q_u32(numbers.as_ptr()) });
        let x = row.pair(b * groups / 2 + i);
        let low = vshrq_n_s32::<16>(vshlq_n_s32::<16>(both));
        sum = vmlaq_n_s32(sum, low, i32::from(x as i16));
        sum = vmlaq_n_s32(sum, vshrq_n_s32::<16>(both), x >> 16);
    }
    if groups == 1 {
        sum = vdupq_n_s32(row.sum(b));
    }
    vmulq_f32(vcvtq_f32_s32(sum), load_f32(&minimums.unit.as_chunks().0[quarter]))
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
