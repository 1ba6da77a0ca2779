//! Q4_K: 256 nibbles in 8 groups with six-bit scales and minimums;
//! `value = d · scale · nibble − dmin · minimum`.

use super::groups::Groups;
use super::half_at;

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: `d`, `dmin`, 12 of scales and minimums, 128 of nibbles.
pub const BYTES: usize = 144;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let (d, dmin) = (half_at(block, 0), half_at(block, 2));
        for (j, value) in values.iter_mut().enumerate() {
            let (scale, minimum) = scale_minimum(&block[4..16], j / 32);
            let number = nibble_of_groups(&block[16..], j);
            *value = d * f32::from(scale) * f32::from(number) - dmin * f32::from(minimum);
        }
    }
}

/// Scale and minimum of group `i` of 8. The first four groups have theirs in the low six bits of
/// bytes `i` and `i + 4`; the last four have four bits in byte `i + 4` and two on top of those.
pub fn scale_minimum(bytes: &[u8], i: usize) -> (u8, u8) {
    if i < 4 {
        (bytes[i] & 63, bytes[i + 4] & 63)
    } else {
        let low = bytes[i + 4];
        (low & 15 | bytes[i - 4] >> 6 << 4, low >> 4 | bytes[i] >> 6 << 4)
    }
}

/// Nibble `j` of 256 where 32 bytes hold one group low and the next one high.
pub fn nibble_of_groups(bytes: &[u8], j: usize) -> u8 {
    bytes[j / 64 * 32 + j % 32] >> (4 * (j / 32 % 2)) & 15
}

/// Encodes one block.
pub(super) fn encode(values: &[f32; VALUES], weights: &[f32; VALUES], block: &mut [u8; BYTES]) {
    const HIGHEST: f32 = 15.0;
    let groups = Groups::fit(values, weights, HIGHEST);
    groups.pack(block);
    for (j, number) in groups.numbers(values, HIGHEST).into_iter().enumerate() {
        put_nibble_of_groups(&mut block[16..], j, number);
    }
}

/// Writes nibble `j` of a block of zeros, as [`nibble_of_groups`] reads it.
pub(super) fn put_nibble_of_groups(bytes: &mut [u8], j: usize, number: u8) {
    bytes[j / 64 * 32 + j % 32] |= number << (4 * (j / 32 % 2));
}
