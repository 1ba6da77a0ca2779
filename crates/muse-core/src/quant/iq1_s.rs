//! IQ1_S: 256 values as 32 points of a grid of 2048 whose entries are −1, 0 and 1, in 8 groups of
//! four points; `value = d · (2 · scale + 1) · (grid ± ⅛)`.

use super::grid::{IQ1, ternary};
use super::half_at;

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: `d`, 32 low index bytes, 8 words of four times three high index bits, a
/// three-bit scale and the sign of the shift.
pub const BYTES: usize = 50;

/// Shift of a group's points.
pub const SHIFT: f32 = 0.125;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let d = half_at(block, 0);
        let words = block[34..].as_chunks::<2>().0;
        for (g, (values, word)) in values.chunks_exact_mut(32).zip(words).enumerate() {
            let word = u16::from_le_bytes(*word);
            let scale = d * f32::from(2 * (word >> 12 & 7) + 1);
            let shift = if word >> 15 == 1 { -SHIFT } else { SHIFT };
            for (i, values) in values.chunks_exact_mut(8).enumerate() {
                let high = usize::from(word >> (3 * i) & 7);
                let point = IQ1[usize::from(block[2 + 4 * g + i]) | high << 8];
                ternary(point, shift, scale, values);
            }
        }
    }
}
