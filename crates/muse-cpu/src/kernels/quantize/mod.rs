//! Quantizes activations to signed bytes: a scale per block of values, and the sums of groups of
//! quants that products with weights need.

#[cfg(target_arch = "x86_64")]
mod avx512;

use super::isa::Isa;
#[cfg(target_arch = "x86_64")]
use super::isa::Level;
use super::per_isa::per_isa;

/// Adding it to an `f32` below 2²² in magnitude rounds that to an integer, which is then in the low
/// bits of the sum.
const ROUND: f32 = 12_582_912.0;
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
/// For weights with integer scales: added to group sums, so that the lower of two 16-bit sums in a
/// word never borrows from the upper one.
pub(crate) const BORROW_BIAS: i32 = 0x8000;

/// The offset of weights with integer scales in groups of 16 or 32 values, if they have one; group
/// sums are stored multiplied by it.
pub(crate) const fn weight_offset(group: usize) -> i32 {
    512 / group as i32
}

/// What a row of quantized activations contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int8Layout {
    /// Values that share a scale: 32 or 256.
    pub block: usize,
    /// Whether sums are stored as products with weights with integer scales need them; only with
    /// blocks of 256.
    pub integer_scales: bool,
}

impl Int8Layout {
    /// All layouts.
    pub const ALL: [Self; 3] = [
        Self { block: 32, integer_scales: false },
        Self { block: 256, integer_scales: false },
        Self { block: 256, integer_scales: true },
    ];
}

/// Word offsets of the parts of a row, which begins with the quants.
#[derive(Clone, Copy)]
pub(crate) struct Int8Offsets {
    /// The scales of the blocks.
    pub(crate) scales: usize,
    /// The negated sums of groups of 16 quants, and of groups of 32. With integer scales they are
    /// multiplied by [`weight_offset`], and [`BORROW_BIAS`] is added.
    pub(crate) sums: [usize; 2],
    /// With integer scales: the negated sums of two neighbouring groups in the halves of a word,
    /// for groups of 16 and of 32.
    pub(crate) sum_pairs: [usize; 2],
    /// Words of a row.
    pub(crate) len: usize,
}

impl Int8Offsets {
    /// The offsets in a row of `k` values.
    pub(crate) const fn new(k: usize, layout: Int8Layout) -> Self {
        let scales = k / 4;
        let sums_16 = scales + k / layout.block;
        let sums_32 = sums_16 + k / 16;
        let pairs_16 = sums_32 + k / 32;
        let (pairs_32, len) = match layout.integer_scales {
            false => (pairs_16, pairs_16),
            true => (pairs_16 + k / 32, pairs_16 + k / 32 + k / 64),
        };
        Self { scales, sums: [sums_16, sums_32], sum_pairs: [pairs_16, pairs_32], len }
    }

    /// The offsets of the sums and of the sum pairs for groups of 16 or 32.
    pub(crate) fn of_group(&self, group: usize) -> (usize, usize) {
        let which = usize::from(group == 32);
        (self.sums[which], self.sum_pairs[which])
    }
}

/// Quantizes `k` values block by block into the words of a row: `k / 4` words of four quants, the
/// first in the lowest bits; the bits of each block's scale; the negated sum of each 16 quants; the
/// negated sum of each 32 quants; with integer scales the same sums again, two neighbours in the
/// halves of a word. Consecutive words are `stride` apart.
///
/// A scale is `max |x| / 127`, or more where the magnitudes of a group would be too large for
/// 16-bit sums. Quants are rounded to nearest, ties to even. NaN or infinity in a block makes its
/// scale NaN or infinite.
pub type Quantize = fn(x: &[f32], layout: Int8Layout, words: &mut [i32], stride: usize);

/// The kernel for an instruction set.
pub fn select(isa: Isa) -> Quantize {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Vnni | Level::Bf16 => avx512::quantize,
        _ => plain::select(isa),
    }
}

/// Every kernel that this CPU can run, with the name of its instruction set; the first is the
/// definition.
pub fn variants() -> impl Iterator<Item = (&'static str, Quantize)> {
    Isa::available().iter().map(|&isa| (isa.name(), select(isa)))
}

pub mod plain {
    //! The definition as a plain loop, compiled once per instruction set.

    use super::{Quantize, per_isa, quantize};

    per_isa!(
        Quantize = fn(x: &[f32], layout: super::Int8Layout, words: &mut [i32], stride: usize),
        quantize
    );
}

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
fn block_scale(max_abs: f32) -> (f32, f32) {
    (max_abs / MAX_QUANT, if max_abs < MIN_MAX_ABS { 0.0 } else { MAX_QUANT / max_abs })
}

/// The factor for the reciprocal of a scale under which the magnitudes of 16 quants added up to as
/// much as `abs_sum`: below 1 where 16-bit sums could overflow.
#[inline(always)]
fn overflow_factor(layout: Int8Layout, abs_sum: i32) -> f32 {
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

/// Writes the parts of a row.
struct RowWriter<'a> {
    offsets: Int8Offsets,
    integer_scales: bool,
    words: &'a mut [i32],
    stride: usize,
}

impl<'a> RowWriter<'a> {
    #[inline(always)]
    fn new(k: usize, layout: Int8Layout, words: &'a mut [i32], stride: usize) -> Self {
        let offsets = Int8Offsets::new(k, layout);
        Self { offsets, integer_scales: layout.integer_scales, words, stride }
    }

    #[inline(always)]
    fn set_scale(&mut self, block: usize, scale: f32) {
        self.words[(self.offsets.scales + block) * self.stride] = scale.to_bits() as i32;
    }

    /// Writes the 32 quants of a chunk.
    #[inline(always)]
    fn set_quants(&mut self, chunk: usize, quads: [i32; 8]) {
        let words = &mut self.words[8 * chunk * self.stride..];
        // An index, since `step_by` would divide by the stride.
        for (q, quad) in quads.into_iter().enumerate() {
            words[q * self.stride] = quad;
        }
    }

    /// Writes the negated sums of a chunk: of its first and last 16 quants, and of all 32.
    #[inline(always)]
    fn set_sums(&mut self, chunk: usize, [a, b]: [i32; 2]) {
        let [sums_16, sums_32] = self.offsets.sums;
        let stored = |sum: i32, group| {
            if self.integer_scales { weight_offset(group) * sum + BORROW_BIAS } else { sum }
        };
        let (low, high, both) = (stored(a, 16), stored(b, 16), stored(a + b, 32));
        self.words[(sums_16 + 2 * chunk) * self.stride] = low;
        self.words[(sums_16 + 2 * chunk + 1) * self.stride] = high;
        self.words[(sums_32 + chunk) * self.stride] = both;
        if self.integer_scales {
            let [pairs_16, pairs_32] = self.offsets.sum_pairs;
            self.words[(pairs_16 + chunk) * self.stride] = a & 0xffff | b << 16;
            let pair = &mut self.words[(pairs_32 + chunk / 2) * self.stride];
            *pair = if chunk.is_multiple_of(2) { (a + b) & 0xffff } else { *pair | (a + b) << 16 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a row, which must be the same for all instruction sets and strides.
    fn words(x: &[f32], layout: Int8Layout) -> Vec<i32> {
        let mut first = None;
        for ((name, kernel), stride) in variants().flat_map(|v| [(v, 1), (v, 3)]) {
            let mut words = vec![0; stride * Int8Offsets::new(x.len(), layout).len];
            kernel(x, layout, &mut words, stride);
            let words: Vec<i32> = words.into_iter().step_by(stride).collect();
            assert_eq!(*first.get_or_insert_with(|| words.clone()), words, "{name} {stride}");
        }
        first.expect("the definition")
    }

    /// The values that a row decodes to, and its quants.
    fn run(x: &[f32], layout: Int8Layout) -> (Vec<f32>, Vec<i32>) {
        let (k, offsets) = (x.len(), Int8Offsets::new(x.len(), layout));
        let words = words(x, layout);
        let quants: Vec<i32> = words[..k / 4]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .map(|n| i32::from(n as i8))
            .collect();
        let scale = |i: usize| f32::from_bits(words[offsets.scales + i / layout.block] as u32);
        let decoded = quants.iter().enumerate().map(|(i, &n)| scale(i) * n as f32).collect();
        (decoded, quants)
    }

    fn values(k: usize) -> Vec<f32> {
        (0..k).map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 7.0).collect()
    }

    #[test]
    fn values_decode_within_half_a_scale() {
        for layout in Int8Layout::ALL {
            let x: Vec<f32> = values(512).into_iter().map(|x| x * x * x).collect();
            let (decoded, _) = run(&x, layout);
            for (decoded, x) in decoded.chunks_exact(layout.block).zip(x.chunks_exact(layout.block))
            {
                let max_abs = x.iter().fold(0.0_f32, |a, x| a.max(x.abs()));
                for (decoded, x) in decoded.iter().zip(x) {
                    assert!((decoded - x).abs() <= max_abs / 127.0 * 0.5001, "{decoded} for {x}");
                }
            }
        }
    }

    #[test]
    fn sums_are_those_of_the_quants() {
        for layout in Int8Layout::ALL {
            let x = values(512);
            let (offsets, words, (_, quants)) =
                (Int8Offsets::new(512, layout), words(&x, layout), run(&x, layout));
            for (which, group) in [16, 32].into_iter().enumerate() {
                let negated: Vec<i32> =
                    quants.chunks(group).map(|n| -n.iter().sum::<i32>()).collect();
                let sums = &words[offsets.sums[which]..][..negated.len()];
                let pairs = words[offsets.sum_pairs[which]..].iter().take(negated.len() / 2);
                if !layout.integer_scales {
                    assert_eq!(sums, negated);
                    continue;
                }
                let biased: Vec<i32> =
                    negated.iter().map(|s| s * 512 / group as i32 + 0x8000).collect();
                assert_eq!(sums, biased);
                let halves: Vec<i32> =
                    pairs.flat_map(|&pair| [i32::from(pair as i16), pair >> 16]).collect();
                assert_eq!(halves, negated);
            }
        }
    }

    /// Sixteen equal values have the largest possible sum of magnitudes, which would overflow 16
    /// bits.
    #[test]
    fn scale_grows_where_16_bit_sums_would_overflow() {
        let x: Vec<f32> = (0..256).map(|i| if i / 16 == 5 { -1.0 } else { 0.3 }).collect();
        for layout in Int8Layout::ALL {
            let (decoded, quants) = run(&x, layout);
            let abs_sum = |n: &[i32]| n.iter().map(|n| n.abs()).sum::<i32>();
            let max_abs_sum = quants.chunks(16).map(abs_sum).max();
            let expected = if layout.integer_scales { 63 * 16 } else { 127 * 16 };
            assert_eq!(max_abs_sum, Some(expected));
            for (decoded, x) in decoded.iter().zip(&x) {
                assert!((decoded - x).abs() <= 0.5001 / 63.0, "{decoded} for {x}");
            }
        }
    }

    #[test]
    fn zeros_stay_zero_and_non_finite_values_show() {
        for layout in Int8Layout::ALL {
            let mut x = vec![0.0; 2 * layout.block];
            assert!(run(&x, layout).0.iter().all(|x| *x == 0.0));
            let (zeros, at) = (layout.block, layout.block + 8);
            x[at] = 1e-38;
            assert!(run(&x, layout).0.iter().all(|x| *x == 0.0), "a scale without a reciprocal");
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                x[at] = bad;
                let decoded = run(&x, layout).0;
                assert!(decoded[..zeros].iter().all(|x| *x == 0.0), "the other block is zero");
                assert!(decoded[zeros..].iter().any(|x| !x.is_finite()), "{bad} shows");
            }
        }
    }
}
