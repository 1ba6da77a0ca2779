//! Reads and writes the packed fields that several formats share: half-precision scales, nibbles
//! and two-bit fields.

/// The half-precision number at byte `at`.
pub(super) fn half_at(block: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Writes a number in half precision and returns it as it was rounded.
pub(super) fn put_half(block: &mut [u8], at: usize, value: f32) -> f32 {
    let half = half::f16::from_f32(value);
    block[at..][..2].copy_from_slice(&half.to_le_bytes());
    half.to_f32()
}

/// Nibble `j` of 32: byte `j % 16` holds nibble `j` in its low half for `j < 16`, else in its high
/// half.
pub(super) fn nibble(bytes: &[u8], j: usize) -> u8 {
    bytes[j % 16] >> (4 * (j / 16)) & 15
}

/// Writes nibble `j` of 32, as [`nibble`] reads it, into zeroed bytes.
pub(super) fn put_nibble(bytes: &mut [u8], j: usize, quant: u8) {
    bytes[j % 16] |= quant << (4 * (j / 16));
}

/// Two-bit field `j` of 256: each half of 128 has 32 bytes, which hold its four runs of 32 from the
/// lowest bits up.
pub(super) fn two_bits(bytes: &[u8], j: usize) -> u8 {
    bytes[j / 128 * 32 + j % 32] >> (2 * (j / 32 % 4)) & 3
}
