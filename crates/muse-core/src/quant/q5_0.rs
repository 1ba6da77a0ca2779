//! Q5_0: a half-precision scale and 32 five-bit quants; `value = scale · (quant − 16)`.

use super::bits::{half_at, nibble, put_half, put_nibble};
use super::least_squares::{IntRange, inverse};

/// Values of a quant block.
pub const VALUES: usize = 32;
/// Bytes of a quant block: the scale, 32 fifth bits, nibbles as in Q4_0.
pub const BYTES: usize = 22;

/// Decodes whole quant blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let scale = half_at(block, 0);
        for (j, value) in values.iter_mut().enumerate() {
            *value = scale * f32::from(quant(block, j) as i8 - 16);
        }
    }
}

/// Quant `j` of a block, plus 16.
pub fn quant(block: &[u8], j: usize) -> u8 {
    five_bits(&block[2..], j)
}

/// Five-bit quant `j` of `bytes`: 4 bytes of fifth bits, then the nibbles.
pub(super) fn five_bits(bytes: &[u8], j: usize) -> u8 {
    nibble(&bytes[4..], j) | (bytes[j / 8] >> (j % 8) & 1) << 4
}

/// Encodes one quant block.
pub(super) fn encode(values: &[f32; VALUES], weights: &[f32; VALUES], block: &mut [u8; BYTES]) {
    let range = IntRange { lowest: -16.0, highest: 15.0 };
    let scale = put_half(block, 0, range.fit(values, weights));
    let inverse = inverse(scale);
    for (j, &value) in values.iter().enumerate() {
        put_five_bits(&mut block[2..], j, (range.quant(value, inverse) + 16.0) as u8);
    }
}

/// Writes five-bit quant `j`, as [`five_bits`] reads it, into zeroed bytes.
pub(super) fn put_five_bits(bytes: &mut [u8], j: usize, quant: u8) {
    put_nibble(&mut bytes[4..], j, quant & 15);
    bytes[j / 8] |= quant >> 4 << (j % 8);
}
