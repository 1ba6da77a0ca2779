//! Q4_1: 32 nibbles behind a half-precision scale and minimum; `value = scale · nibble + minimum`.

use super::{half_at, nibble};

/// Values of a block.
pub const VALUES: usize = 32;
/// Bytes of a block: scale, minimum, nibbles as in Q4_0.
pub const BYTES: usize = 20;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
        for (j, value) in values.iter_mut().enumerate() {
            *value = scale * f32::from(nibble(&block[4..], j)) + minimum;
        }
    }
}
