//! Q5_1: 32 five-bit numbers behind a half-precision scale and minimum;
//! `value = scale · number + minimum`.

use super::encode::put_half;
use super::fit::{Line, inverse};
use super::half_at;
use super::q5_0::{fifth, put_fifth};

/// Values of a block.
pub const VALUES: usize = 32;
/// Bytes of a block: scale, minimum, 32 fifth bits, nibbles as in Q4_0.
pub const BYTES: usize = 24;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
        for (j, value) in values.iter_mut().enumerate() {
            *value = scale * f32::from(number(block, j)) + minimum;
        }
    }
}

/// Number `j` of a block.
pub fn number(block: &[u8], j: usize) -> u8 {
    fifth(&block[4..], j)
}

/// Encodes one block.
pub(super) fn encode(values: &[f32; VALUES], weights: &[f32; VALUES], block: &mut [u8; BYTES]) {
    const HIGHEST: f32 = 31.0;
    let Line { scale, offset } = Line::fit(values, weights, HIGHEST, true);
    let line = Line { scale: put_half(block, 0, scale), offset: put_half(block, 2, offset) };
    let inverse = inverse(line.scale);
    for (j, &value) in values.iter().enumerate() {
        put_fifth(&mut block[4..], j, line.number(value, inverse, HIGHEST) as u8);
    }
}
