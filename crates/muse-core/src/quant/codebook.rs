//! Formats whose quants are indices into a codebook of at most 16 values: one loop decodes them
//! all, and a backend can use one layout for all of them.

/// A format with a codebook. A quant block has a scale of its own, integer scales of its groups
/// and, for each value, an index into the codebook: `value = block_scale · scale · CODEBOOK[index]
/// − block_minimum · minimum`.
pub trait Codebook {
    /// Values of a quant block.
    const VALUES: usize;
    /// Bytes of a quant block.
    const BYTES: usize;
    /// Values of a group, which share a scale: 16 or 32.
    const GROUP: usize;
    /// Whether groups have minimums.
    const HAS_MINIMUMS: bool = false;
    /// Integers below 64 in magnitude, padded with zeros.
    const CODEBOOK: [f32; 16];

    /// The factor of all scales of a quant block.
    fn block_scale(block: &[u8]) -> f32;

    /// The integer scale of a group.
    fn scale(block: &[u8], group: usize) -> i8;

    /// The factor of all minimums of a quant block.
    fn block_minimum(_: &[u8]) -> f32 {
        0.0
    }

    /// The integer minimum of a group.
    fn minimum(_: &[u8], _: usize) -> u8 {
        0
    }

    /// The codebook index of value `j`, below 16.
    fn index(block: &[u8], j: usize) -> u8;
}

/// Decodes whole quant blocks.
pub(super) fn decode<C: Codebook>(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(C::VALUES).zip(bytes.chunks_exact(C::BYTES)) {
        let (block_scale, block_minimum) = (C::block_scale(block), C::block_minimum(block));
        for (group, values) in values.chunks_exact_mut(C::GROUP).enumerate() {
            let scale = block_scale * f32::from(C::scale(block, group));
            let minimum = block_minimum * f32::from(C::minimum(block, group));
            for (j, value) in values.iter_mut().enumerate() {
                let index = C::index(block, group * C::GROUP + j);
                *value = scale * C::CODEBOOK[usize::from(index)] - minimum;
            }
        }
    }
}

/// Scale `i` of odd scales stored as nibbles: `2 · nibble + 1`.
pub(super) fn odd_scale(nibbles: &[u8], i: usize) -> i8 {
    2 * (nibbles[i / 2] >> (4 * (i % 2)) & 15) as i8 + 1
}

/// A codebook of fewer than 16 values.
pub(super) const fn padded<const N: usize>(values: [f32; N]) -> [f32; 16] {
    let (mut codebook, mut i) = ([0.0; 16], 0);
    while i < N {
        codebook[i] = values[i];
        i += 1;
    }
    codebook
}

/// A codebook of magnitudes, then their negatives.
pub(super) const fn with_negatives<const N: usize>(magnitudes: [f32; N]) -> [f32; 16] {
    let (mut codebook, mut i) = ([0.0; 16], 0);
    while i < N {
        codebook[i] = magnitudes[i];
        codebook[N + i] = -magnitudes[i];
        i += 1;
    }
    codebook
}
