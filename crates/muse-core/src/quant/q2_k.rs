//! Q2_K: 256 two-bit numbers in 16 groups with four-bit scales and minimums;
//! `value = d · scale · number − dmin · minimum`.

use super::leveled::{Leveled, first};
use super::{half_at, two_bits};

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: 16 group bytes (scale low, minimum high), 64 of numbers, `d`, `dmin`.
pub const BYTES: usize = 84;

/// The format as levels.
pub struct Q2K;

impl Leveled for Q2K {
    const VALUES: usize = VALUES;
    const BYTES: usize = BYTES;
    const GROUP: usize = 16;
    const MINIMUMS: bool = true;
    const LEVELS: [f32; 16] = first([0.0, 1.0, 2.0, 3.0]);

    fn unit(block: &[u8]) -> f32 {
        half_at(block, 80)
    }

    fn scale(block: &[u8], group: usize) -> i8 {
        (block[group] & 15) as i8
    }

    fn minimum_unit(block: &[u8]) -> f32 {
        half_at(block, 82)
    }

    fn minimum(block: &[u8], group: usize) -> u8 {
        block[group] >> 4
    }

    fn index(block: &[u8], j: usize) -> u8 {
        two_bits(&block[16..], j)
    }
}
