//! Q5_0: 32 five-bit numbers behind a half-precision scale; `value = scale · (number − 16)`.

use super::encode::{put_half, put_nibble};
use super::fit::{Signed, inverse};
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
            *value = scale * f32::from(number(block, j) as i8 - 16);
        }
    }
}

/// Number `j` of a block, 16 added.
pub fn number(block: &[u8], j: usize) -> u8 {
    fifth(&block[2..], j)
}

/// Number `j` of a block whose fifth bits, then nibbles begin at `bytes`.
pub(super) fn fifth(bytes: &[u8], j: usize) -> u8 {
    nibble(&bytes[4..], j) | (bytes[j / 8] >> (j % 8) & 1) << 4
}

/// Encodes one block.
pub(super) fn encode(values: &[f32; VALUES], weights: &[f32; VALUES], block: &mut [u8; BYTES]) {
    let range = Signed { lowest: -16.0, highest: 15.0 };
    let scale = put_half(block, 0, range.fit(values, weights));
    let inverse = inverse(scale);
    for (j, &value) in values.iter().enumerate() {
        put_fifth(&mut block[2..], j, (range.number(value, inverse) + 16.0) as u8);
    }
}

/// Writes number `j` of a block of zeros whose fifth bits, then nibbles begin at `bytes`.
pub(super) fn put_fifth(bytes: &mut [u8], j: usize, number: u8) {
    put_nibble(&mut bytes[4..], j, number & 15);
    bytes[j / 8] |= number >> 4 << (j % 8);
}
