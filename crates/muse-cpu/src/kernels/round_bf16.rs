//! Rounds activations, keys and values to BF16.

use super::per_isa::per_isa;

/// Rounds values to BF16, to nearest and ties to even; NaN stays NaN. Two values share a word, the
/// first in its low half; with an odd number of values the last high half is 0. Consecutive words
/// are `stride` apart.
pub type RoundBf16 = fn(x: &[f32], words: &mut [i32], stride: usize);

per_isa!(RoundBf16 = fn(x: &[f32], words: &mut [i32], stride: usize), round_bf16);

#[inline(always)]
fn round_bf16(x: &[f32], words: &mut [i32], stride: usize) {
    let (pairs, rest) = x.as_chunks::<2>();
    for (word, &[a, b]) in words.iter_mut().step_by(stride).zip(pairs) {
        *word = (bf16_bits(a) | bf16_bits(b) << 16) as i32;
    }
    if let [last] = rest {
        words[pairs.len() * stride] = bf16_bits(*last) as i32;
    }
}

/// The same for two rows of one length, value by value: word `i` holds `low[i]` in its low half and
/// `high[i]` in its high half, in little-endian bytes.
pub type InterleaveBf16 = fn(low: &[f32], high: &[f32], words: &mut [[u8; 4]]);

/// Rounding of two rows.
pub mod interleave {
    super::per_isa!(
        super::InterleaveBf16 = fn(low: &[f32], high: &[f32], words: &mut [[u8; 4]]),
        super::interleave_bf16
    );
}

#[inline(always)]
fn interleave_bf16(low: &[f32], high: &[f32], words: &mut [[u8; 4]]) {
    for ((word, low), high) in words.iter_mut().zip(low).zip(high) {
        *word = (bf16_bits(*low) | bf16_bits(*high) << 16).to_le_bytes();
    }
}

#[inline(always)]
fn bf16_bits(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    // Rounding could carry the bits of a NaN over into infinity or into the sign.
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
            for (name, kernel) in interleave::variants() {
                let mut words = vec![[0; 4]; n];
                let reversed: Vec<f32> = x.iter().rev().copied().collect();
                kernel(x, &reversed, &mut words);
                for (i, word) in words.into_iter().enumerate() {
                    let [low, high] =
                        [[word[0], word[1]], [word[2], word[3]]].map(u16::from_le_bytes);
                    assert_eq!([low, high], [want[i], want[n - 1 - i]], "{name}, value {i} of {n}");
                }
            }
        }
    }
}
