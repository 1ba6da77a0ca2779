//! IQ4_XS: 256 indices into the levels of IQ4_NL in 8 groups with six-bit scales;
//! `value = d · (scale − 32) · LEVELS[index]`.

use super::iq4_nl::LEVELS;
use super::{half_at, nibble};

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: `d`, 2 of high scale bits, 4 of low scale nibbles, 128 of indices.
pub const BYTES: usize = 136;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let d = half_at(block, 0);
        let high = u16::from_le_bytes([block[2], block[3]]);
        for (group, values) in values.chunks_exact_mut(32).enumerate() {
            let low = block[4 + group / 2] >> (4 * (group % 2)) & 15;
            let scale = low | ((high >> (2 * group) & 3) as u8) << 4;
            let scale = d * f32::from(scale as i8 - 32);
            for (j, value) in values.iter_mut().enumerate() {
                let index = nibble(&block[8 + 16 * group..], j);
                *value = scale * f32::from(LEVELS[usize::from(index)]);
            }
        }
    }
}
