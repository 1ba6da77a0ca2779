//! Q4_0: a half-precision scale and 32 nibbles; `value = scale · (nibble − 8)`.

use super::bits::{half_at, nibble, put_half, put_nibble};
use super::least_squares::{IntRange, inverse};

/// Values of a quant block.
pub const VALUES: usize = 32;
/// Bytes of a quant block: the scale, then the nibbles; byte `j` holds values `j` (low) and `j +
/// 16`.
pub const BYTES: usize = 18;

/// Decodes whole quant blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let scale = half_at(block, 0);
        for (j, value) in values.iter_mut().enumerate() {
            *value = scale * f32::from(quant(block, j) as i8 - 8);
        }
    }
}

/// Nibble `j` of a block.
pub fn quant(block: &[u8], j: usize) -> u8 {
    nibble(&block[2..], j)
}

/// Encodes one quant block.
pub(super) fn encode(values: &[f32; VALUES], weights: &[f32; VALUES], block: &mut [u8; BYTES]) {
    let range = IntRange { lowest: -8.0, highest: 7.0 };
    let scale = put_half(block, 0, range.fit(values, weights));
    let inverse = inverse(scale);
    for (j, &value) in values.iter().enumerate() {
        put_nibble(&mut block[2..], j, (range.quant(value, inverse) + 8.0) as u8);
    }
}
