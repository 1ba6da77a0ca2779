//! The definition of quantization as a plain loop, compiled once per instruction set.

use super::layout::{Int8Layout, RowWriter};
use crate::kernels::per_isa::per_isa;

/// Adding it to an `f32` below 2²² in magnitude rounds that to an integer, which is then in the low
/// bits of the sum.
pub(super) const ROUND: f32 = 12_582_912.0;
/// The largest quant.
const MAX_QUANT: f32 = 127.0;
/// Blocks whose largest magnitude is smaller than this get quants of zero: the reciprocal of their
/// scale could overflow.
const MIN_MAX_ABS: f32 = 1e-30;

/// For weights with integer scales: the largest sum of the magnitudes of 16 quants. Products with
/// weights of up to 32, or of up to 16 in groups of 32, then fit 16 bits.
const MAX_ABS_SUM: i32 = 1023;
/// The same for the sum of scaled values that are not rounded yet.
const MAX_ABS_SUM_UNROUNDED: f32 = 1015.0;
/// Quantizes `k` values block by block into the words of a row: `k / 4` words of four quants, the
/// first in the lowest bits; the bits of each block's scale; the negated sum of each 16 quants; the
/// negated sum of each 32 quants; with integer scales the same sums again, two neighbours in the
/// halves of a word. Consecutive words are `stride` apart.
///
/// A scale is `max |x| / 127`, or more where the magnitudes of a group would be too large for
/// 16-bit sums. Quants are rounded to nearest, ties to even. NaN or infinity in a block makes its
/// scale NaN or infinite.
pub type Quantize = fn(x: &[f32], layout: Int8Layout, words: &mut [i32], stride: usize);

per_isa!(
    Quantize = fn(x: &[f32], layout: super::layout::Int8Layout, words: &mut [i32], stride: usize),
    quantize
);

#[inline(always)]
fn quantize(x: &[f32], layout: Int8Layout, words: &mut [i32], stride: usize) {
    let mut row = RowWriter::new(x.len(), layout, words, stride);
    for (b, x) in x.chunks_exact(layout.block).enumerate() {
        // The bits of magnitudes are ordered like the magnitudes, and those of NaN come last.
        let mut maxima = [0_u32; 32];
        for x in x.as_chunks::<32>().0 {
            for (max, x) in maxima.iter_mut().zip(x) {
                *max = (x.to_bits() & 0x7fff_ffff).max(*max);
            }
        }
        let max_abs = f32::from_bits(maxima.into_iter().fold(0, u32::max));
        let (scale, inverse) = block_scale(max_abs);
        let chunk = b * (layout.block / 32);
        let factor = overflow_factor(layout, write_block(x, inverse, &mut row, chunk));
        if factor < 1.0 {
            write_block(x, inverse * factor, &mut row, chunk);
        }
        row.set_scale(b, scale / factor);
    }
}

/// The scale of a block whose largest magnitude is `max_abs`, and its reciprocal.
#[inline(always)]
pub(super) fn block_scale(max_abs: f32) -> (f32, f32) {
    (max_abs / MAX_QUANT, if max_abs < MIN_MAX_ABS { 0.0 } else { MAX_QUANT / max_abs })
}

/// The factor for the reciprocal of a scale under which the magnitudes of 16 quants added up to as
/// much as `abs_sum`: below 1 where 16-bit sums could overflow.
#[inline(always)]
pub(super) fn overflow_factor(layout: Int8Layout, abs_sum: i32) -> f32 {
    // Rounding added at most a half to each of 16 magnitudes, and will do so again.
    if layout.integer_scales && abs_sum > MAX_ABS_SUM {
        MAX_ABS_SUM_UNROUNDED / (abs_sum + 8) as f32
    } else {
        1.0
    }
}

/// Writes the quants of a block and their sums, chunks of 32 values from `chunk`. With integer
/// scales it returns the largest sum of the magnitudes of 16 quants, else 0.
#[inline(always)]
fn write_block(x: &[f32], inverse: f32, row: &mut RowWriter<'_>, chunk: usize) -> i32 {
    let mut max_abs_sum = 0;
    for (i, x) in x.as_chunks::<32>().0.iter().enumerate() {
        let rounded = x.map(|x| (x * inverse + ROUND).to_bits() as i32 as i8);
        let quads = rounded.as_chunks::<4>().0;
        let word = |q: usize| i32::from_le_bytes(quads[q].map(|quant| quant as u8));
        row.set_quants(chunk + i, std::array::from_fn(word));
        let sum = |half: &[i8]| half.iter().map(|&quant| i32::from(quant)).sum::<i32>();
        row.set_sums(chunk + i, [-sum(&rounded[..16]), -sum(&rounded[16..])]);
        if row.integer_scales {
            let abs_sum =
                |half: &[i8]| half.iter().map(|&q| i32::from(q.unsigned_abs())).sum::<i32>();
            max_abs_sum = max_abs_sum.max(abs_sum(&rounded[..16])).max(abs_sum(&rounded[16..]));
        }
    }
    max_abs_sum
}
