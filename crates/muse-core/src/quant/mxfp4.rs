//! MXFP4: 32 four-bit floats (two exponent bits, one of mantissa) behind a power-of-two scale, as
//! the OCP Microscaling specification lays down; `value = 2^(e − 128) · LEVELS[index]`, the levels
//! being doubled to stay whole.

use super::leveled::Leveled;
use super::nibble;

/// Values of a block.
pub const VALUES: usize = 32;
/// Bytes of a block: the exponent, indices as in Q4_0.
pub const BYTES: usize = 17;

/// Twice the four-bit floats, in the order of their bits.
const LEVELS: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0];

/// The format as levels.
pub struct Mxfp4;

impl Leveled for Mxfp4 {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 32;
    const LEVELS: [f32; 16] = LEVELS;

    /// `2^(e − 128)`; the two smallest exponents give subnormal numbers.
    fn unit(block: &[u8]) -> f32 {
        let e = block[0];
        f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (u32::from(e) - 1) << 23 })
    }

    fn scale(_: &[u8], _: usize) -> i8 {
        1
    }

    fn index(block: &[u8], j: usize) -> u8 {
        nibble(&block[1..], j)
    }
}
