//! Q5_K: 256 five-bit numbers in 8 groups with six-bit scales and minimums;
//! `value = d · scale · number − dmin · minimum`.

use super::groups::Groups;
use super::half_at;
use super::q4_k::{nibble_of_groups, put_nibble_of_groups, scale_minimum};

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: `d`, `dmin`, 12 of scales and minimums, 32 of fifth bits, 128 of nibbles.
pub const BYTES: usize = 176;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let (d, dmin) = (half_at(block, 0), half_at(block, 2));
        for (j, value) in values.iter_mut().enumerate() {
            let (scale, minimum) = scale_minimum(&block[4..16], j / 32);
            let number = f32::from(number(block, j));
            *value = d * f32::from(scale) * number - dmin * f32::from(minimum);
        }
    }
}

/// Number `j` of a block.
pub fn number(block: &[u8], j: usize) -> u8 {
    let high = block[16 + j % 32] >> (j / 32) & 1;
    nibble_of_groups(&block[48..], j) | high << 4
}

/// Encodes one block.
pub(super) fn encode(values: &[f32; VALUES], weights: &[f32; VALUES], block: &mut [u8; BYTES]) {
    const HIGHEST: f32 = 31.0;
    let groups = Groups::fit(values, weights, HIGHEST);
    groups.pack(block);
    for (j, number) in groups.numbers(values, HIGHEST).into_iter().enumerate() {
        put_nibble_of_groups(&mut block[48..], j, number & 15);
        block[16 + j % 32] |= number >> 4 << (j / 32);
    }
}
