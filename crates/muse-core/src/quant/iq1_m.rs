//! IQ1_M: as IQ1_S with a three-bit scale for two points and a shift of its own for each point;
//! the half-precision `d` is spread over the top nibbles of the four scale words.

use super::grid::{IQ1, ternary};
use super::iq1_s::SHIFT;

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: 32 low index bytes, 32 nibbles of three high index bits and the sign of the
/// shift, 4 words of four three-bit scales under a nibble of `d`.
pub const BYTES: usize = 56;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let words = [48, 50, 52, 54].map(|at| u16::from_le_bytes([block[at], block[at + 1]]));
        let bits = words.iter().rev().fold(0, |bits, word| bits << 4 | word >> 12);
        let d = half::f16::from_bits(bits).to_f32();
        for (i, values) in values.chunks_exact_mut(8).enumerate() {
            let scale = words[i / 8] >> (3 * (i / 2 % 4)) & 7;
            let scale = d * f32::from(2 * scale + 1);
            let nibble = block[32 + i / 2] >> (4 * (i % 2)) & 15;
            let shift = if nibble >> 3 == 1 { -SHIFT } else { SHIFT };
            let high = usize::from(nibble & 7);
            ternary(IQ1[usize::from(block[i]) | high << 8], shift, scale, values);
        }
    }
}
