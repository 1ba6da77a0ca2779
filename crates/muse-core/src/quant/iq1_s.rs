//! IQ1_S: 256 values as 32 points of a grid of 2048 whose entries are −1, 0 and 1, in 8 groups of
//! four points; `value = d · (2 · scale + 1) · (grid ± ⅛)`.

use super::bits::half_at;
use super::codebook::{Codebook, padded};
use super::grid::IQ1;

/// Values of a quant block.
pub const VALUES: usize = 256;
/// Bytes of a quant block: `d`, 32 bytes of low index bits, 8 words of three high index bits for
/// each of four points, a three-bit scale and the sign of the shift.
pub const BYTES: usize = 50;

/// Eight times the entries −1, 0 and 1, each shifted up and down by ⅛.
pub(super) const CODEBOOK: [f32; 16] = padded([-7.0, -9.0, 1.0, -1.0, 9.0, 7.0]);

/// The codebook index of value `j` of eight of a point; `down` is the sign of the shift.
pub(super) fn codebook_index(point: u16, j: usize, down: bool) -> u8 {
    2 * (point >> (2 * j) & 3) as u8 + u8::from(down)
}

/// The format, for code that is generic over [`Codebook`].
pub struct Iq1S;

impl Codebook for Iq1S {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 32;
    const CODEBOOK: [f32; 16] = CODEBOOK;

    fn block_scale(block: &[u8]) -> f32 {
        0.125 * half_at(block, 0)
    }

    fn scale(block: &[u8], group: usize) -> i8 {
        (2 * (word(block, group) >> 12 & 7) + 1) as i8
    }

    fn index(block: &[u8], j: usize) -> u8 {
        let word = word(block, j / 32);
        let high = usize::from(word >> (3 * (j / 8 % 4)) & 7);
        codebook_index(IQ1[usize::from(block[2 + j / 8]) | high << 8], j % 8, word >> 15 == 1)
    }
}

/// The word of group `group`.
fn word(block: &[u8], group: usize) -> u16 {
    u16::from_le_bytes([block[34 + 2 * group], block[35 + 2 * group]])
}
