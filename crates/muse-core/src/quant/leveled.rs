//! Formats whose numbers are indices into a few levels, so that one loop decodes them all and a
//! backend can lay all of them out alike.

/// A block is a unit, scales of groups of values, and for each value the index of a level:
/// `value = unit · scale · level − minimum_unit · minimum`.
pub trait Leveled {
    /// Values of a block.
    const VALUES: usize;
    /// Bytes of a block.
    const BYTES: usize;
    /// Values that share a scale: 16 or 32.
    const GROUP: usize;
    /// Whether groups have minimums.
    const MINIMUMS: bool = false;
    /// Whole numbers below 64 in size.
    const LEVELS: [f32; 16];

    /// What the scales of a block count in.
    fn unit(block: &[u8]) -> f32;

    /// Scale of group `group`.
    fn scale(block: &[u8], group: usize) -> i8;

    /// What the minimums of a block count in.
    fn minimum_unit(_: &[u8]) -> f32 {
        0.0
    }

    /// Minimum of group `group`.
    fn minimum(_: &[u8], _: usize) -> u8 {
        0
    }

    /// The level of value `j`, below 16.
    fn index(block: &[u8], j: usize) -> u8;
}

/// Decodes whole blocks.
pub(super) fn decode<L: Leveled>(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(L::VALUES).zip(bytes.chunks_exact(L::BYTES)) {
        let (unit, minimum_unit) = (L::unit(block), L::minimum_unit(block));
        for (group, values) in values.chunks_exact_mut(L::GROUP).enumerate() {
            let scale = unit * f32::from(L::scale(block, group));
            let minimum = minimum_unit * f32::from(L::minimum(block, group));
            for (j, value) in values.iter_mut().enumerate() {
                let index = L::index(block, group * L::GROUP + j);
                *value = scale * L::LEVELS[usize::from(index)] - minimum;
            }
        }
    }
}

/// Scale `i` of those that are odd numbers, their halves nibbles.
pub(super) fn odd(nibbles: &[u8], i: usize) -> i8 {
    2 * (nibbles[i / 2] >> (4 * (i % 2)) & 15) as i8 + 1
}

/// Levels that are fewer than 16.
pub(super) const fn first<const N: usize>(few: [f32; N]) -> [f32; 16] {
    let (mut levels, mut i) = ([0.0; 16], 0);
    while i < N {
        levels[i] = few[i];
        i += 1;
    }
    levels
}

/// Sizes, then the same with a minus.
pub(super) const fn signed<const N: usize>(sizes: [f32; N]) -> [f32; 16] {
    let (mut levels, mut i) = ([0.0; 16], 0);
    while i < N {
        levels[i] = sizes[i];
        levels[N + i] = -sizes[i];
        i += 1;
    }
    levels
}
