//! IQ2_S: 256 values as 32 points of a grid of 1024 with their signs, in 16 groups of two points;
//! `value = d · (½ + scale) / 4 · sign · grid`.

use super::grid::{IQ2_S, eight};
use super::half_at;

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: `d`, 32 low index bytes, 32 sign bytes, 8 of high index bits, 16 scale
/// nibbles.
pub const BYTES: usize = 82;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let d = half_at(block, 0);
        for (i, values) in values.chunks_exact_mut(8).enumerate() {
            let high = usize::from(block[66 + i / 4] >> (2 * (i % 4)) & 3);
            let nibble = block[74 + i / 4] >> (4 * (i / 2 % 2)) & 15;
            let scale = d * (0.5 + f32::from(nibble)) * 0.25;
            eight(IQ2_S[usize::from(block[2 + i]) | high << 8], block[34 + i], scale, values);
        }
    }
}
