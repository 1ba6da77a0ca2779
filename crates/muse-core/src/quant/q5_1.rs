//! Q5_1: a half-precision scale and minimum and 32 five-bit quants;
//! `value = scale · quant + minimum`.

use super::bits::{half_at, put_half};
use super::least_squares::{Affine, inverse};
use super::q5_0::{five_bits, put_five_bits};

/// Values of a quant block.
pub const VALUES: usize = 32;
/// Bytes of a quant block: scale, minimum, 32 fifth bits, nibbles as in Q4_0.
pub const BYTES: usize = 24;

/// Decodes whole quant blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
        for (j, value) in values.iter_mut().enumerate() {
            *value = scale * f32::from(quant(block, j)) + minimum;
        }
    }
}

/// Quant `j` of a block.
pub fn quant(block: &[u8], j: usize) -> u8 {
    five_bits(&block[4..], j)
}

/// Encodes one quant block.
pub(super) fn encode(values: &[f32; VALUES], weights: &[f32; VALUES], block: &mut [u8; BYTES]) {
    const MAX_QUANT: f32 = 31.0;
    let Affine { scale, offset } = Affine::fit(values, weights, MAX_QUANT, true);
    let fit = Affine { scale: put_half(block, 0, scale), offset: put_half(block, 2, offset) };
    let inverse = inverse(fit.scale);
    for (j, &value) in values.iter().enumerate() {
        put_five_bits(&mut block[4..], j, fit.quant(value, inverse, MAX_QUANT) as u8);
    }
}
