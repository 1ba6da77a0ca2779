//! Q3_K: 256 three-bit quants in 16 groups with six-bit scales;
//! `value = d · (scale − 32) · (quant − 4)`.

use super::bits::{half_at, two_bits};
use super::codebook::{Codebook, padded};

/// Values of a quant block.
pub const VALUES: usize = 256;
/// Bytes of a quant block: 32 of high bits, 64 of low bits, 12 of scales, `d`.
pub const BYTES: usize = 110;

/// The format, for code that is generic over [`Codebook`].
pub struct Q3K;

impl Codebook for Q3K {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 16;
    const CODEBOOK: [f32; 16] = padded([-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]);

    fn block_scale(block: &[u8]) -> f32 {
        half_at(block, 108)
    }

    /// The four low bits are in the first eight of twelve bytes, the two high bits in the last
    /// four.
    fn scale(block: &[u8], group: usize) -> i8 {
        let bytes = &block[96..108];
        let low = bytes[group % 8] >> (4 * (group / 8)) & 15;
        let high = bytes[8 + group % 4] >> (2 * (group / 4)) & 3;
        (low | high << 4) as i8 - 32
    }

    fn index(block: &[u8], j: usize) -> u8 {
        two_bits(&block[32..], j) | (block[j % 32] >> (j / 32) & 1) << 2
    }
}
