//! Activations as bytes: blocks of values with a scale, and sums of groups of them.

#[cfg(target_arch = "x86_64")]
mod avx512;

use std::ops::Range;

use super::Isa;
#[cfg(target_arch = "x86_64")]
use super::Level;
use super::plain::per_isa;

/// Added and taken away again, it rounds a small `f32` to an integer and leaves it in the low bits.
const ROUND: f32 = 12_582_912.0;
/// The largest number.
const MOST: f32 = 127.0;
/// Below this a quotient could overflow; such values are zero beside any others.
const LEAST: f32 = 1e-30;

/// Where things begin in a row of bytes, behind its numbers.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    /// Scales of blocks.
    pub(crate) scales: usize,
    /// Minus the sums of groups of 16, and of 32.
    pub(crate) sums: [usize; 2],
    /// The same of two neighbours in the halves of a word; of blocks of more than one group only.
    pub(crate) pairs: [usize; 2],
    /// Words of a row.
    pub(crate) end: usize,
}

impl Places {
    /// Of a row of `k` values in blocks of 32 or 256.
    pub(crate) const fn of(k: usize, block: usize) -> Self {
        let scales = k / 4;
        let sums_16 = scales + k / block;
        let sums_32 = sums_16 + k / 16;
        let pairs_16 = sums_32 + k / 32;
        let (pairs_32, end) = match block {
            32 => (pairs_16, pairs_16),
            _ => (pairs_16 + k / 32, pairs_16 + k / 32 + k / 64),
        };
        Self { scales, sums: [sums_16, sums_32], pairs: [pairs_16, pairs_32], end }
    }

    /// Of sums and of pairs of groups of 16 or 32.
    pub(crate) fn of_group(&self, group: usize) -> (usize, usize) {
        let which = usize::from(group == 32);
        (self.sums[which], self.pairs[which])
    }
}

/// Quantizes `k` values by blocks of `block` into words: `k / 4` of four numbers, the first in the
/// lowest bits; `k / block` of scales, as bits; minus the sums of 16 numbers each; minus those of
/// 32 each; of blocks of 256 the same again, two neighbours in the halves of a word. A word is
/// `stride` words behind the one before. A scale is `max |x| / 127`, numbers are rounded to nearest.
/// What is not a number or is infinite makes its block's scale so.
pub type Quantize = fn(x: &[f32], block: usize, words: &mut [i32], stride: usize);

/// The kernel of an instruction set.
pub fn select(isa: Isa) -> Quantize {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Vnni | Level::Bf16 => avx512::quantize,
        _ => plain::select(isa),
    }
}

/// Every kernel this CPU can run, by name; the first is the definition.
pub fn variants() -> impl Iterator<Item = (&'static str, Quantize)> {
    Isa::available().iter().map(|&isa| (isa.name(), select(isa)))
}

pub mod plain {
    //! The loop as the compiler makes vectors of it.

    use super::{Quantize, per_isa, quantize};

    per_isa!(Quantize = fn(x: &[f32], block: usize, words: &mut [i32], stride: usize), quantize);
}

#[inline(always)]
fn quantize(x: &[f32], block: usize, words: &mut [i32], stride: usize) {
    let places = Places::of(x.len(), block);
    for (b, x) in x.chunks_exact(block).enumerate() {
        // Bits of positive numbers are ordered like the numbers, and those of NaN come last.
        let mut tops = [0_u32; 32];
        for x in x.as_chunks::<32>().0 {
            for (top, x) in tops.iter_mut().zip(x) {
                *top = (x.to_bits() & 0x7fff_ffff).max(*top);
            }
        }
        let largest = f32::from_bits(tops.into_iter().fold(0, u32::max));
        let inverse = if largest < LEAST { 0.0 } else { MOST / largest };
        words[(places.scales + b) * stride] = (largest / MOST).to_bits() as i32;
        for (i, x) in x.as_chunks::<32>().0.iter().enumerate() {
            let at = b * (block / 32) + i;
            let rounded = x.map(|x| (x * inverse + ROUND).to_bits() as i32 as i8);
            let words_of = words[8 * at * stride..].iter_mut().step_by(stride);
            for (word, four) in words_of.zip(rounded.as_chunks::<4>().0) {
                *word = i32::from_le_bytes(four.map(|number| number as u8));
            }
            let sum = |half: &[i8]| half.iter().map(|&number| i32::from(number)).sum::<i32>();
            let sums = [-sum(&rounded[..16]), -sum(&rounded[16..])];
            put_sums(sums, &places, at, words, stride);
        }
        if block > 32 {
            put_pairs(&places, b * (block / 32)..(b + 1) * (block / 32), words, stride);
        }
    }
}

/// Minus the sums of the halves of 32 numbers, and that of all.
#[inline(always)]
fn put_sums([a, b]: [i32; 2], places: &Places, at: usize, words: &mut [i32], stride: usize) {
    let [halves, wholes] = places.sums;
    words[(halves + 2 * at) * stride] = a;
    words[(halves + 2 * at + 1) * stride] = b;
    words[(wholes + at) * stride] = a + b;
}

/// The sums of a block's parts of 32 numbers, by twos.
#[inline(always)]
fn put_pairs(places: &Places, parts: Range<usize>, words: &mut [i32], stride: usize) {
    let [halves, wholes] = places.sums;
    let [pairs_16, pairs_32] = places.pairs;
    for at in parts.clone() {
        let (low, high) =
            (words[(halves + 2 * at) * stride], words[(halves + 2 * at + 1) * stride]);
        words[(pairs_16 + at) * stride] = low & 0xffff | high << 16;
    }
    for pair in parts.start / 2..parts.end / 2 {
        let at = wholes + 2 * pair;
        let (low, high) = (words[at * stride], words[(at + 1) * stride]);
        words[(pairs_32 + pair) * stride] = low & 0xffff | high << 16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(x: &[f32], block: usize) -> (Vec<f32>, Vec<i32>) {
        let k = x.len();
        let mut first = None;
        for ((name, kernel), stride) in variants().flat_map(|v| [(v, 1), (v, 3)]) {
            let mut words = vec![0; stride * Places::of(k, block).end];
            kernel(x, block, &mut words, stride);
            let words: Vec<i32> = words.into_iter().step_by(stride).collect();
            assert_eq!(*first.get_or_insert_with(|| words.clone()), words, "{name} {stride}");
        }
        let words = first.expect("the definition");
        let (numbers, rest) = words.split_at(k / 4);
        let (scales, sums) = rest.split_at(k / block);
        let numbers = numbers.iter().flat_map(|word| word.to_le_bytes());
        let scale = |i: usize| f32::from_bits(scales[i / block] as u32);
        let read = numbers.enumerate().map(|(i, n)| scale(i) * f32::from(n as i8)).collect();
        (read, sums[..k / 16].to_vec())
    }

    #[test]
    fn values_read_back_within_half_a_unit() {
        for block in [32, 256] {
            let x: Vec<f32> = (0..512).map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 7.0).collect();
            let (read, sums) = run(&x, block);
            for (read, x) in read.chunks_exact(block).zip(x.chunks_exact(block)) {
                let largest = x.iter().fold(0.0_f32, |a, x| a.max(x.abs()));
                for (read, x) in read.iter().zip(x) {
                    assert!((read - x).abs() <= largest / 127.0 * 0.5001, "{read} for {x}");
                }
            }
            // A sum times the scale is the sum of what was read.
            for (i, sum) in sums.iter().enumerate() {
                let values = &read[16 * i..16 * (i + 1)];
                let block = &x[16 * i / block * block..][..block];
                let scale = block.iter().fold(0.0_f32, |a, x| a.max(x.abs())) / 127.0;
                let (got, want) = (-(*sum as f32) * scale, values.iter().sum::<f32>());
                assert!((got - want).abs() <= 1e-3, "{got} {want}");
            }
        }
    }

    #[test]
    fn zeros_stay_and_errors_show() {
        let mut x = [0.0; 64];
        assert_eq!(run(&x, 32).0, [0.0; 64]);
        x[40] = 1e-38;
        assert_eq!(run(&x, 32).0, [0.0; 64], "too small for a quotient");
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            x[40] = bad;
            let read = run(&x, 32).0;
            assert!(read[..32].iter().all(|x| *x == 0.0), "the other block is right");
            assert!(read[32..].iter().any(|x| !x.is_finite()), "{bad} is not hidden");
        }
    }
}
