//! Quantizes activations to signed bytes: a scale per block of values, and the sums of groups of
//! quants that products with weights need.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod layout;
pub mod plain;

pub use layout::Int8Layout;
pub(crate) use layout::{BORROW_BIAS, Int8Offsets, weight_offset};
pub use plain::Quantize;

use super::isa::Isa;
#[cfg(target_arch = "x86_64")]
use super::isa::Level;

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
