//! IQ4_NL: 32 indices into 16 uneven levels behind a half-precision scale;
//! `value = scale · LEVELS[index]`.

use super::{half_at, nibble};

/// Values of a block.
pub const VALUES: usize = 32;
/// Bytes of a block: the scale, indices as in Q4_0.
pub const BYTES: usize = 18;

/// The levels, in the order of their index.
pub const LEVELS: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let scale = half_at(block, 0);
        for (j, value) in values.iter_mut().enumerate() {
            *value = scale * f32::from(LEVELS[usize::from(index(block, j))]);
        }
    }
}

/// Index `j` of 32.
pub fn index(block: &[u8], j: usize) -> u8 {
    nibble(&block[2..], j)
}
