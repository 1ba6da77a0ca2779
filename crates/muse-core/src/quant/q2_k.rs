//! Q2_K: 256 two-bit quants in 16 groups with four-bit scales and minimums;
//! `value = d · scale · quant − dmin · minimum`.

use super::bits::{half_at, two_bits};
use super::codebook::{Codebook, padded};

/// Values of a quant block.
pub const VALUES: usize = 256;
/// Bytes of a quant block: 16 group bytes (scale low, minimum high), 64 of quants, `d`, `dmin`.
pub const BYTES: usize = 84;

/// The format, for code that is generic over [`Codebook`].
pub struct Q2K;

impl Codebook for Q2K {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 16;
    const HAS_MINIMUMS: bool = true;
    const CODEBOOK: [f32; 16] = padded([0.0, 1.0, 2.0, 3.0]);

    fn block_scale(block: &[u8]) -> f32 {
        half_at(block, 80)
    }

    fn scale(block: &[u8], group: usize) -> i8 {
        (block[group] & 15) as i8
    }

    fn block_minimum(block: &[u8]) -> f32 {
        half_at(block, 82)
    }

    fn minimum(block: &[u8], group: usize) -> u8 {
        block[group] >> 4
    }

    fn index(block: &[u8], j: usize) -> u8 {
        two_bits(&block[16..], j)
    }
}
