//! Activations as bytes: blocks of values with a scale, and sums of groups of them.

#[cfg(target_arch = "x86_64")]
mod avx512;

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

/// What the sizes of a group of 16 numbers add up to at most where sums are whole, so that products
/// with weights of up to 32, or up to 16 in groups of 32, fit 16 bits.
const MOST_MASS: i32 = 1023;
/// The same of values before they are rounded.
const MOST_VALUES: f32 = 1015.0;
/// What whole sums have besides, so that the lower of two in a word takes nothing from the upper.
pub(crate) const HALF: i32 = 0x8000;

/// What a group of 16 or 32 has its whole sums multiplied by: the offset of its weights, if any.
pub(crate) const fn centre(group: usize) -> i32 {
    512 / group as i32
}

/// A form of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Values that share a scale, 32 or 256.
    pub block: usize,
    /// Whether sums are kept as products with weights whose scales are integers want them; of
    /// blocks of 256 only.
    pub whole: bool,
}

impl Form {
    /// Every form.
    pub const ALL: [Self; 3] = [
        Self { block: 32, whole: false },
        Self { block: 256, whole: false },
        Self { block: 256, whole: true },
    ];
}

/// Where things begin in a row of bytes, behind its numbers.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    /// Scales of blocks.
    pub(crate) scales: usize,
    /// Minus the sums of groups of 16, and of 32; whole ones `centre` times that and [`HALF`] more.
    pub(crate) sums: [usize; 2],
    /// Minus the sums of two neighbours in the halves of a word, where sums are whole.
    pub(crate) pairs: [usize; 2],
    /// Words of a row.
    pub(crate) end: usize,
}

impl Places {
    /// Of a row of `k` values.
    pub(crate) const fn of(k: usize, form: Form) -> Self {
        let scales = k / 4;
        let sums_16 = scales + k / form.block;
        let sums_32 = sums_16 + k / 16;
        let pairs_16 = sums_32 + k / 32;
        let (pairs_32, end) = match form.whole {
            false => (pairs_16, pairs_16),
            true => (pairs_16 + k / 32, pairs_16 + k / 32 + k / 64),
        };
        Self { scales, sums: [sums_16, sums_32], pairs: [pairs_16, pairs_32], end }
    }

    /// Of sums and of pairs of groups of 16 or 32.
    pub(crate) fn of_group(&self, group: usize) -> (usize, usize) {
        let which = usize::from(group == 32);
        (self.sums[which], self.pairs[which])
    }
}

/// Quantizes `k` values by blocks into words: `k / 4` of four numbers, the first in the lowest bits;
/// a scale of each block, as bits; minus the sums of 16 numbers each; minus those of 32 each; where
/// sums are whole the same again, two neighbours in the halves of a word. A word is `stride` words
/// behind the one before. A scale is `max |x| / 127`, or more where a group would be too heavy
/// for whole sums; numbers are rounded to nearest. What is not a number or is infinite makes its
/// block's scale so.
pub type Quantize = fn(x: &[f32], form: Form, words: &mut [i32], stride: usize);

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

    per_isa!(Quantize = fn(x: &[f32], form: super::Form, words: &mut [i32], stride: usize), quantize);
}

#[inline(always)]
fn quantize(x: &[f32], form: Form, words: &mut [i32], stride: usize) {
    let mut to = To { slices: Places::of(x.len(), form), whole: form.whole, words, stride };
    for (b, x) in x.chunks_exact(form.block).enumerate() {
        // Bits of positive numbers are ordered like the numbers, and those of NaN come last.
        let mut tops = [0_u32; 32];
        for x in x.as_chunks::<32>().0 {
            for (top, x) in tops.iter_mut().zip(x) {
                *top = (x.to_bits() & 0x7fff_ffff).max(*top);
            }
        }
        let largest = f32::from_bits(tops.into_iter().fold(0, u32::max));
        let (scale, inverse) = unit(largest);
        let at = b * (form.block / 32);
        let factor = lighter(form, numbers(x, inverse, &mut to, at));
        if factor < 1.0 {
            numbers(x, inverse * factor, &mut to, at);
        }
        to.scale(b, scale / factor);
    }
}

/// The scale of a block whose largest value has size `largest`, and its inverse.
#[inline(always)]
fn unit(largest: f32) -> (f32, f32) {
    (largest / MOST, if largest < LEAST { 0.0 } else { MOST / largest })
}

/// What the inverse is multiplied by where the numbers were too heavy for whole sums: the sizes of
/// 16 added up to `mass`.
#[inline(always)]
fn lighter(form: Form, mass: i32) -> f32 {
    // Rounding had a part of at most a half in each size, and will have again.
    if form.whole && mass > MOST_MASS { MOST_VALUES / (mass + 8) as f32 } else { 1.0 }
}

/// Writes the numbers of a block and their sums, from part `at` of 32 on. Returns the most that the
/// sizes of 16 add up to, where it matters.
#[inline(always)]
fn numbers(x: &[f32], inverse: f32, to: &mut To<'_>, at: usize) -> i32 {
    let mut most = 0;
    for (i, x) in x.as_chunks::<32>().0.iter().enumerate() {
        let rounded = x.map(|x| (x * inverse + ROUND).to_bits() as i32 as i8);
        let quads = rounded.as_chunks::<4>().0;
        let word = |q: usize| i32::from_le_bytes(quads[q].map(|number| number as u8));
        to.numbers(at + i, std::array::from_fn(word));
        let sum = |half: &[i8]| half.iter().map(|&number| i32::from(number)).sum::<i32>();
        to.sums(at + i, [-sum(&rounded[..16]), -sum(&rounded[16..])]);
        if to.whole {
            let mass = |half: &[i8]| half.iter().map(|&n| i32::from(n.unsigned_abs())).sum::<i32>();
            most = most.max(mass(&rounded[..16])).max(mass(&rounded[16..]));
        }
    }
    most
}

/// A row that is written.
struct To<'a> {
    slices: Places,
    whole: bool,
    words: &'a mut [i32],
    stride: usize,
}

impl To<'_> {
    #[inline(always)]
    fn scale(&mut self, block: usize, scale: f32) {
        self.words[(self.slices.scales + block) * self.stride] = scale.to_bits() as i32;
    }

    /// The numbers of part `at`.
    #[inline(always)]
    fn numbers(&mut self, at: usize, numbers: [i32; 8]) {
        let words = &mut self.words[8 * at * self.stride..];
        // An iterator of steps would divide.
        for (q, four) in numbers.into_iter().enumerate() {
            words[q * self.stride] = four;
        }
    }

    /// Minus the sums of the halves of part `at`, and that of all of it.
    #[inline(always)]
    fn sums(&mut self, at: usize, [a, b]: [i32; 2]) {
        let [halves, wholes] = self.slices.sums;
        let whole = |sum: i32, group| if self.whole { centre(group) * sum + HALF } else { sum };
        let (low, high, both) = (whole(a, 16), whole(b, 16), whole(a + b, 32));
        self.words[(halves + 2 * at) * self.stride] = low;
        self.words[(halves + 2 * at + 1) * self.stride] = high;
        self.words[(wholes + at) * self.stride] = both;
        if self.whole {
            let [halves, wholes] = self.slices.pairs;
            self.words[(halves + at) * self.stride] = a & 0xffff | b << 16;
            let pair = &mut self.words[(wholes + at / 2) * self.stride];
            *pair = if at.is_multiple_of(2) { (a + b) & 0xffff } else { *pair | (a + b) << 16 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits of a row, the same of all instruction sets and strides.
    fn words(x: &[f32], form: Form) -> Vec<i32> {
        let mut first = None;
        for ((name, kernel), stride) in variants().flat_map(|v| [(v, 1), (v, 3)]) {
            let mut words = vec![0; stride * Places::of(x.len(), form).end];
            kernel(x, form, &mut words, stride);
            let words: Vec<i32> = words.into_iter().step_by(stride).collect();
            assert_eq!(*first.get_or_insert_with(|| words.clone()), words, "{name} {stride}");
        }
        first.expect("the definition")
    }

    /// What a row stands for, and its numbers.
    fn run(x: &[f32], form: Form) -> (Vec<f32>, Vec<i32>) {
        let (k, slices) = (x.len(), Places::of(x.len(), form));
        let words = words(x, form);
        let numbers: Vec<i32> = words[..k / 4]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .map(|n| i32::from(n as i8))
            .collect();
        let scale = |i: usize| f32::from_bits(words[slices.scales + i / form.block] as u32);
        let read = numbers.iter().enumerate().map(|(i, &n)| scale(i) * n as f32).collect();
        (read, numbers)
    }

    fn values(k: usize) -> Vec<f32> {
        (0..k).map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 7.0).collect()
    }

    #[test]
    fn values_read_back_within_half_a_unit() {
        for form in Form::ALL {
            let x: Vec<f32> = values(512).into_iter().map(|x| x * x * x).collect();
            let (read, _) = run(&x, form);
            for (read, x) in read.chunks_exact(form.block).zip(x.chunks_exact(form.block)) {
                let largest = x.iter().fold(0.0_f32, |a, x| a.max(x.abs()));
                for (read, x) in read.iter().zip(x) {
                    assert!((read - x).abs() <= largest / 127.0 * 0.5001, "{read} for {x}");
                }
            }
        }
    }

    #[test]
    fn sums_are_those_of_the_numbers() {
        for form in Form::ALL {
            let x = values(512);
            let (slices, words, (_, numbers)) =
                (Places::of(512, form), words(&x, form), run(&x, form));
            for (which, group) in [16, 32].into_iter().enumerate() {
                let minus: Vec<i32> =
                    numbers.chunks(group).map(|n| -n.iter().sum::<i32>()).collect();
                let sums = &words[slices.sums[which]..][..minus.len()];
                let pairs = words[slices.pairs[which]..].iter().take(minus.len() / 2);
                if !form.whole {
                    assert_eq!(sums, minus);
                    continue;
                }
                let whole: Vec<i32> =
                    minus.iter().map(|s| s * 512 / group as i32 + 0x8000).collect();
                assert_eq!(sums, whole);
                let halves: Vec<i32> =
                    pairs.flat_map(|&pair| [i32::from(pair as i16), pair >> 16]).collect();
                assert_eq!(halves, minus);
            }
        }
    }

    /// Sixteen equal values are as heavy as can be, and whole sums of them would not fit.
    #[test]
    fn heavy_groups_get_a_larger_unit_where_sums_are_whole() {
        let x: Vec<f32> = (0..256).map(|i| if i / 16 == 5 { -1.0 } else { 0.3 }).collect();
        for form in Form::ALL {
            let (read, numbers) = run(&x, form);
            let mass = |n: &[i32]| n.iter().map(|n| n.abs()).sum::<i32>();
            let most = numbers.chunks(16).map(mass).max();
            assert_eq!(most, Some(if form.whole { 63 * 16 } else { 127 * 16 }));
            for (read, x) in read.iter().zip(&x) {
                assert!((read - x).abs() <= 0.5001 / 63.0, "{read} for {x}");
            }
        }
    }

    #[test]
    fn zeros_stay_and_errors_show() {
        for form in Form::ALL {
            let mut x = vec![0.0; 2 * form.block];
            assert!(run(&x, form).0.iter().all(|x| *x == 0.0));
            let (zeros, at) = (form.block, form.block + 8);
            x[at] = 1e-38;
            assert!(run(&x, form).0.iter().all(|x| *x == 0.0), "too small for a quotient");
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                x[at] = bad;
                let read = run(&x, form).0;
                assert!(read[..zeros].iter().all(|x| *x == 0.0), "the other block is right");
                assert!(read[zeros..].iter().any(|x| !x.is_finite()), "{bad} is not hidden");
            }
        }
    }
}
