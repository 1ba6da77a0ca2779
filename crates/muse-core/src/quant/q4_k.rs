//! Q4_K: 256 nibbles in 8 groups with six-bit scales and minimums;
//! `value = d · scale · nibble − dmin · minimum`.

use super::bits::half_at;
use super::k_groups::Groups;

/// Values of a quant block.
pub const VALUES: usize = 256;
/// Bytes of a quant block: `d`, `dmin`, 12 of scales and minimums, 128 of nibbles.
pub const BYTES: usize = 144;

/// Decodes whole quant blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let (d, dmin) = (half_at(block, 0), half_at(block, 2));
        for (j, value) in values.iter_mut().enumerate() {
            let (scale, minimum) = scale_minimum(&block[4..16], j / 32);
            let quant = nibble_of_groups(&block[16..], j);
            *value = d * f32::from(scale) * f32::from(quant) - dmin * f32::from(minimum);
        }
    }
}

/// Scale and minimum of group `i` of 8. Groups 0 to 3 have theirs in the low six bits of bytes `i`
/// and `i + 4`. Groups 4 to 7 have the four low bits of both in byte `i + 4` and the two high bits
/// in the top bits of bytes `i - 4` and `i`.
pub fn scale_minimum(bytes: &[u8], i: usize) -> (u8, u8) {
    if i < 4 {
        (bytes[i] & 63, bytes[i + 4] & 63)
    } else {
        let low = bytes[i + 4];
        (low & 15 | bytes[i - 4] >> 6 << 4, low >> 4 | bytes[i] >> 6 << 4)
    }
}

/// Nibble `j` of 256: 32 bytes hold one group in their low halves and the next in their high
/// halves.
pub fn nibble_of_groups(bytes: &[u8], j: usize) -> u8 {
    bytes[j / 64 * 32 + j % 32] >> (4 * (j / 32 % 2)) & 15
}

/// Encodes one quant block.
pub(super) fn encode(values: &[f32; VALUES], weights: &[f32; VALUES], block: &mut [u8; BYTES]) {
    const MAX_QUANT: f32 = 15.0;
    let groups = Groups::fit(values, weights, MAX_QUANT);
    groups.pack(block);
    for (j, quant) in groups.quants(values, MAX_QUANT).into_iter().enumerate() {
        put_nibble_of_groups(&mut block[16..], j, quant);
    }
}

/// Writes nibble `j`, as [`nibble_of_groups`] reads it, into zeroed bytes.
pub(super) fn put_nibble_of_groups(bytes: &mut [u8], j: usize, quant: u8) {
    bytes[j / 64 * 32 + j % 32] |= quant << (4 * (j / 32 % 2));
}
