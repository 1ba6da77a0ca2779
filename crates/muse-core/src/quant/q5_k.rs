//! Q5_K: 256 five-bit quants in 8 groups with six-bit scales and minimums;
//! `value = d · scale · quant − dmin · minimum`.

use super::bits::half_at;
use super::k_groups::Groups;
use super::q4_k::{nibble_of_groups, put_nibble_of_groups, scale_minimum};

/// Values of a quant block.
pub const VALUES: usize = 256;
/// Bytes of a quant block: `d`, `dmin`, 12 of scales and minimums, 32 of fifth bits, 128 of
/// nibbles.
pub const BYTES: usize = 176;

/// Decodes whole quant blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let (d, dmin) = (half_at(block, 0), half_at(block, 2));
        for (j, value) in values.iter_mut().enumerate() {
            let (scale, minimum) = scale_minimum(&block[4..16], j / 32);
            let quant = f32::from(quant(block, j));
            *value = d * f32::from(scale) * quant - dmin * f32::from(minimum);
        }
    }
}

/// Quant `j` of a block.
pub fn quant(block: &[u8], j: usize) -> u8 {
    let high = block[16 + j % 32] >> (j / 32) & 1;
    nibble_of_groups(&block[48..], j) | high << 4
}

/// Encodes one quant block.
pub(super) fn encode(values: &[f32; VALUES], weights: &[f32; VALUES], block: &mut [u8; BYTES]) {
    const MAX_QUANT: f32 = 31.0;
    let groups = Groups::fit(values, weights, MAX_QUANT);
    groups.pack(block);
    for (j, quant) in groups.quants(values, MAX_QUANT).into_iter().enumerate() {
        put_nibble_of_groups(&mut block[48..], j, quant & 15);
        block[16 + j % 32] |= quant >> 4 << (j / 32);
    }
}
