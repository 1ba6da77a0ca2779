//! IQ4_XS: 256 indices into the codebook of IQ4_NL in 8 groups with six-bit scales;
//! `value = d · (scale − 32) · CODEBOOK[index]`.

use super::bits::{half_at, nibble};
use super::iq4_nl::CODEBOOK;

/// Values of a quant block.
pub const VALUES: usize = 256;
/// Bytes of a quant block: `d`, 2 of high scale bits, 4 of low scale nibbles, 128 of indices.
pub const BYTES: usize = 136;

/// Decodes whole quant blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let d = half_at(block, 0);
        for (group, values) in values.chunks_exact_mut(32).enumerate() {
            let scale = d * f32::from(scale(block, group) as i8 - 32);
            for (j, value) in values.iter_mut().enumerate() {
                *value = scale * f32::from(CODEBOOK[usize::from(index(block, 32 * group + j))]);
            }
        }
    }
}

/// Scale of group `i` of 8, plus 32.
pub fn scale(block: &[u8], i: usize) -> u8 {
    let high = u16::from_le_bytes([block[2], block[3]]);
    let low = block[4 + i / 2] >> (4 * (i % 2)) & 15;
    low | ((high >> (2 * i) & 3) as u8) << 4
}

/// Index `j` of 256.
pub fn index(block: &[u8], j: usize) -> u8 {
    nibble(&block[8 + j / 32 * 16..], j % 32)
}
