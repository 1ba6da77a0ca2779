//! Q6_K: 256 six-bit numbers in 16 groups with signed byte scales;
//! `value = d · scale · (number − 32)`.

use super::half_at;

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: 128 of low nibbles, 64 of high bits, 16 scales, `d`.
pub const BYTES: usize = 210;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let d = half_at(block, 208);
        for (j, value) in values.iter_mut().enumerate() {
            // Halves of 128: four runs of 32, the low nibbles of runs 0 and 1 before the high
            // ones of runs 2 and 3, the four runs' high bits in one byte.
            let (half, run, at) = (j / 128, j / 32 % 4, j % 32);
            let low = block[half * 64 + run % 2 * 32 + at] >> (4 * (run / 2)) & 15;
            let high = block[128 + half * 32 + at] >> (2 * run) & 3;
            let scale = d * f32::from(block[192 + j / 16] as i8);
            *value = scale * f32::from((low | high << 4) as i8 - 32);
        }
    }
}
