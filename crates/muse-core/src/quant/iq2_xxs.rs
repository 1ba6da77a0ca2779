//! IQ2_XXS: 256 values as 32 points of a grid of 256 with their signs, in 8 groups of four points;
//! `value = d · (½ + scale) / 4 · sign · grid`.

use super::grid::{IQ2_XXS, eight};
use super::half_at;
use super::sign::even;

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: `d`, then per group four grid indices and a word of four seven-bit sign
/// patterns under a four-bit scale.
pub const BYTES: usize = 66;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let d = half_at(block, 0);
        let groups = block[2..].as_chunks::<8>().0;
        for (values, group) in values.chunks_exact_mut(32).zip(groups) {
            let word = u32::from_le_bytes([group[4], group[5], group[6], group[7]]);
            let scale = d * (0.5 + (word >> 28) as f32) * 0.25;
            for (i, values) in values.chunks_exact_mut(8).enumerate() {
                let signs = even((word >> (7 * i) & 127) as u8);
                eight(IQ2_XXS[usize::from(group[i])], signs, scale, values);
            }
        }
    }
}
