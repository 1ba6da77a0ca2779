//! IQ3_XXS: 256 values as 64 points of a grid of 256 with their signs, in 8 groups of eight points;
//! `value = d · (½ + scale) / 2 · sign · grid`.

use super::grid::{IQ3_XXS, LEVELS_3_XXS, four};
use super::half_at;
use super::sign::even;

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: `d`, 64 grid indices, 8 words of four seven-bit sign patterns under a
/// four-bit scale.
pub const BYTES: usize = 98;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let d = half_at(block, 0);
        let words = block[66..].as_chunks::<4>().0;
        for (g, (values, word)) in values.chunks_exact_mut(32).zip(words).enumerate() {
            let word = u32::from_le_bytes(*word);
            let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
            for (i, values) in values.chunks_exact_mut(8).enumerate() {
                let signs = even((word >> (7 * i) & 127) as u8);
                let (low, high) = values.split_at_mut(4);
                let at = 2 + 8 * g + 2 * i;
                four(IQ3_XXS[usize::from(block[at])], &LEVELS_3_XXS, signs, scale, low);
                four(IQ3_XXS[usize::from(block[at + 1])], &LEVELS_3_XXS, signs >> 4, scale, high);
            }
        }
    }
}
