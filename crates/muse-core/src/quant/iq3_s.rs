//! IQ3_S: 256 values as 64 points of a grid of 512 with their signs, in 8 groups of eight points;
//! `value = d · (1 + 2 · scale) · sign · grid`.

use super::grid::{IQ3_S, LEVELS_3_S, four};
use super::half_at;

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: `d`, 64 low index bytes, 8 of ninth index bits, 32 of signs, 8 scale nibbles.
pub const BYTES: usize = 110;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let d = half_at(block, 0);
        for (i, values) in values.chunks_exact_mut(4).enumerate() {
            let high = usize::from(block[66 + i / 8] >> (i % 8) & 1);
            let signs = block[74 + i / 2] >> (4 * (i % 2));
            let nibble = block[106 + i / 16] >> (4 * (i / 8 % 2)) & 15;
            let scale = d * f32::from(1 + 2 * nibble);
            four(IQ3_S[usize::from(block[2 + i]) | high << 8], &LEVELS_3_S, signs, scale, values);
        }
    }
}
