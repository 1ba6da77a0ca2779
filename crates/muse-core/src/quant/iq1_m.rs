//! IQ1_M: like IQ1_S, but with a three-bit scale for every two points and a shift for every point.
//! The half-precision `d` is spread over the top nibbles of the four scale words.

use super::codebook::Codebook;
use super::grid::IQ1;
use super::iq1_s::{CODEBOOK, codebook_index};

/// Values of a quant block.
pub const VALUES: usize = 256;
/// Bytes of a quant block: 32 bytes of low index bits, 32 nibbles of three high index bits and the
/// sign of the shift, 4 words of four three-bit scales below a nibble of `d`.
pub const BYTES: usize = 56;

/// The format, for code that is generic over [`Codebook`].
pub struct Iq1M;

impl Codebook for Iq1M {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 16;
    const CODEBOOK: [f32; 16] = CODEBOOK;

    fn block_scale(block: &[u8]) -> f32 {
        let bits = (0..4).rev().fold(0, |bits, i| bits << 4 | word(block, i) >> 12);
        0.125 * half::f16::from_bits(bits).to_f32()
    }

    fn scale(block: &[u8], group: usize) -> i8 {
        (2 * (word(block, group / 4) >> (3 * (group % 4)) & 7) + 1) as i8
    }

    fn index(block: &[u8], j: usize) -> u8 {
        let nibble = block[32 + j / 16] >> (4 * (j / 8 % 2)) & 15;
        let high = usize::from(nibble & 7);
        codebook_index(IQ1[usize::from(block[j / 8]) | high << 8], j % 8, nibble >> 3 == 1)
    }
}

/// Scale word `i` of 4.
fn word(block: &[u8], i: usize) -> u16 {
    u16::from_le_bytes([block[48 + 2 * i], block[49 + 2 * i]])
}
