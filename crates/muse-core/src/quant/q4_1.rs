//! Q4_1: 32 nibbles behind a half-precision scale and minimum; `value = scale · nibble + minimum`.

use super::encode::{put_half, put_nibble};
use super::fit::{Line, inverse};
use super::{half_at, nibble};

/// Values of a block.
pub const VALUES: usize = 32;
/// Bytes of a block: scale, minimum, nibbles as in Q4_0.
pub const BYTES: usize = 20;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
        for (j, value) in values.iter_mut().enumerate() {
            *value = scale * f32::from(number(block, j)) + minimum;
        }
    }
}

/// Nibble `j` of a block.
pub fn number(block: &[u8], j: usize) -> u8 {
    nibble(&block[4..], j)
}

/// Encodes one block.
pub(super) fn encode(values: &[f32; VALUES], weights: &[f32; VALUES], block: &mut [u8; BYTES]) {
    const HIGHEST: f32 = 15.0;
    let Line { scale, offset } = Line::fit(values, weights, HIGHEST, true);
    let line = Line { scale: put_half(block, 0, scale), offset: put_half(block, 2, offset) };
    let inverse = inverse(line.scale);
    for (j, &value) in values.iter().enumerate() {
        put_nibble(&mut block[4..], j, line.number(value, inverse, HIGHEST) as u8);
    }
}
