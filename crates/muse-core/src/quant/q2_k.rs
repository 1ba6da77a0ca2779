//! Q2_K: 256 two-bit numbers in 16 groups with four-bit scales and minimums;
//! `value = d · scale · number − dmin · minimum`.

use super::{half_at, two_bits};

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: 16 group bytes (scale low, minimum high), 64 of numbers, `d`, `dmin`.
pub const BYTES: usize = 84;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let (d, dmin) = (half_at(block, 80), half_at(block, 82));
        for (j, value) in values.iter_mut().enumerate() {
            let group = block[j / 16];
            let (scale, minimum) = (d * f32::from(group & 15), dmin * f32::from(group >> 4));
            *value = scale * f32::from(two_bits(&block[16..], j)) - minimum;
        }
    }
}
