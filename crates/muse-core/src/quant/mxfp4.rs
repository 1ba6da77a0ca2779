//! MXFP4: 32 four-bit floats (two exponent bits, one of mantissa) behind a power-of-two scale, as
//! the OCP Microscaling specification lays down; `value = 2^(e − 128) · LEVELS[index]`, the levels
//! being doubled to stay whole.

use super::nibble;

/// Values of a block.
pub const VALUES: usize = 32;
/// Bytes of a block: the exponent, indices as in Q4_0.
pub const BYTES: usize = 17;

/// Twice the four-bit floats, in the order of their bits.
pub const LEVELS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let scale = half_scale(block[0]);
        for (j, value) in values.iter_mut().enumerate() {
            *value = scale * f32::from(LEVELS[usize::from(nibble(&block[1..], j))]);
        }
    }
}

/// `2^(e − 128)`; the two smallest exponents give subnormal numbers.
pub fn half_scale(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (u32::from(e) - 1) << 23 })
}
