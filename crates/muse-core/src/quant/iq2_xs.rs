//! IQ2_XS: 256 values as 32 points of a grid of 512 with their signs, in 16 groups of two points;
//! `value = d · (½ + scale) / 4 · sign · grid`.

use super::grid::{IQ2_XS, eight};
use super::half_at;
use super::sign::even;

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: `d`, 32 words of nine index and seven sign bits, 16 scale nibbles.
pub const BYTES: usize = 74;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let d = half_at(block, 0);
        let words = block[2..66].as_chunks::<2>().0;
        for (i, (values, word)) in values.chunks_exact_mut(8).zip(words).enumerate() {
            let word = u16::from_le_bytes(*word);
            let nibble = block[66 + i / 4] >> (4 * (i / 2 % 2)) & 15;
            let scale = d * (0.5 + f32::from(nibble)) * 0.25;
            eight(IQ2_XS[usize::from(word & 511)], even((word >> 9) as u8), scale, values);
        }
    }
}
