//! MXFP4: a power-of-two scale and 32 four-bit floats (two exponent bits, one mantissa bit), as the
//! OCP Microscaling specification defines them; `value = 2^(e − 128) · CODEBOOK[index]`. The
//! codebook holds the doubled floats, so that they are integers.

use super::bits::nibble;
use super::codebook::Codebook;

/// Values of a quant block.
pub const VALUES: usize = 32;
/// Bytes of a quant block: the exponent, indices as in Q4_0.
pub const BYTES: usize = 17;

/// Twice the four-bit floats, in the order of their bits.
const CODEBOOK: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0];

/// The format, for code that is generic over [`Codebook`].
pub struct Mxfp4;

impl Codebook for Mxfp4 {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 32;
    const CODEBOOK: [f32; 16] = CODEBOOK;

    /// `2^(e − 128)`; the two smallest exponents give subnormal numbers.
    fn block_scale(block: &[u8]) -> f32 {
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
