//! Q5_0: 32 five-bit numbers behind a half-precision scale; `value = scale · (number − 16)`.

use super::{half_at, nibble};

/// Values of a block.
pub const VALUES: usize = 32;
/// Bytes of a block: the scale, 32 fifth bits, nibbles as in Q4_0.
pub const BYTES: usize = 22;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let scale = half_at(block, 0);
        for (j, value) in values.iter_mut().enumerate() {
            *value = scale * f32::from(fifth(&block[2..], j) as i8 - 16);
        }
    }
}

/// Number `j` of a block whose fifth bits, then nibbles begin at `bytes`.
pub(super) fn fifth(bytes: &[u8], j: usize) -> u8 {
    nibble(&bytes[4..], j) | (bytes[j / 8] >> (j % 8) & 1) << 4
}
