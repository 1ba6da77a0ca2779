//! Activations as the upper halves of floats.

use super::plain::per_isa;

/// Rounds values to their upper halves, to nearest and ties to even, two a word, the first in the
/// low bits; an odd last one stands beside a zero; a word is `stride` words behind the one before.
/// What is not a number stays so.
pub type Halves = fn(x: &[f32], words: &mut [i32], stride: usize);

per_isa!(Halves = fn(x: &[f32], words: &mut [i32], stride: usize), halves);

#[inline(always)]
fn halves(x: &[f32], words: &mut [i32], stride: usize) {
    let (pairs, rest) = x.as_chunks::<2>();
    for (word, &[a, b]) in words.iter_mut().step_by(stride).zip(pairs) {
        *word = (half(a) | half(b) << 16) as i32;
    }
    if let [last] = rest {
        words[pairs.len() * stride] = half(*last) as i32;
    }
}

#[inline(always)]
fn half(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    // Rounding could carry a NaN into infinity, or over the sign.
    if x.is_nan() { bits >> 16 | 0x40 } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_as_the_half_crate_rounds() {
        let special = [0.0, -0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 1e-41];
        let mut x: Vec<f32> =
            (0..4001_u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761))).collect();
        x.extend(special);
        for n in (0..40).chain([x.len()]) {
            let x = &x[x.len() - n..];
            let want: Vec<u16> = x.iter().map(|&x| half::bf16::from_f32(x).to_bits()).collect();
            for (name, kernel) in variants() {
                let mut words = vec![0; n.div_ceil(2)];
                kernel(x, &mut words, 1);
                let got = words.iter().flat_map(|word| [*word as u16, (*word >> 16) as u16]);
                assert_eq!(got.take(n).collect::<Vec<_>>(), want, "{name}, {n} values");
            }
        }
    }
}
