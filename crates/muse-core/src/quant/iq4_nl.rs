//! IQ4_NL: a half-precision scale and 32 indices into a codebook of 16 unevenly spaced values;
//! `value = scale · CODEBOOK[index]`.

use super::bits::{half_at, nibble};

/// Values of a quant block.
pub const VALUES: usize = 32;
/// Bytes of a quant block: the scale, indices as in Q4_0.
pub const BYTES: usize = 18;

/// The codebook, in the order of the index.
pub const CODEBOOK: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Decodes whole quant blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let scale = half_at(block, 0);
        for (j, value) in values.iter_mut().enumerate() {
            *value = scale * f32::from(CODEBOOK[usize::from(index(block, j))]);
        }
    }
}

/// Index `j` of 32.
pub fn index(block: &[u8], j: usize) -> u8 {
    nibble(&block[2..], j)
}
