//! Q3_K: 256 three-bit numbers in 16 groups with six-bit scales;
//! `value = d · (scale − 32) · (number − 4)`.

use super::{half_at, two_bits};

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: 32 of high bits, 64 of low bits, 12 of scales, `d`.
pub const BYTES: usize = 110;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let d = half_at(block, 108);
        for (j, value) in values.iter_mut().enumerate() {
            let high = block[j % 32] >> (j / 32) & 1;
            let number = two_bits(&block[32..], j) | high << 2;
            let scale = d * f32::from(scale(&block[96..108], j / 16) as i8 - 32);
            *value = scale * f32::from(number as i8 - 4);
        }
    }
}

/// Scale `i` of 16: four low bits in the first eight bytes, two high bits in the last four.
fn scale(bytes: &[u8], i: usize) -> u8 {
    (bytes[i % 8] >> (4 * (i / 8)) & 15) | (bytes[8 + i % 4] >> (2 * (i / 4)) & 3) << 4
}
