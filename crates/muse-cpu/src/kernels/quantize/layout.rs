//! The words of a row of quantized activations.

/// For weights with integer scales: added to group sums, so that the lower of two 16-bit sums in a
/// word never borrows from the upper one.
pub(crate) const BORROW_BIAS: i32 = 0x8000;

/// The offset of weights with integer scales in groups of 16 or 32 values, if they have one; group
/// sums are stored multiplied by it.
pub(crate) const fn weight_offset(group: usize) -> i32 {
    512 / group as i32
}

/// What a row of quantized activations contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int8Layout {
    /// Values that share a scale: 32 or 256.
    pub block: usize,
    /// Whether sums are stored as products with weights with integer scales need them; only with
    /// blocks of 256.
    pub integer_scales: bool,
}

impl Int8Layout {
    /// All layouts.
    pub const ALL: [Self; 3] = [
        Self { block: 32, integer_scales: false },
        Self { block: 256, integer_scales: false },
        Self { block: 256, integer_scales: true },
    ];
}

/// Word offsets of the parts of a row, which begins with the quants.
#[derive(Clone, Copy)]
pub(crate) struct Int8Offsets {
    /// The scales of the blocks.
    pub(crate) scales: usize,
    /// The negated sums of groups of 16 quants, and of groups of 32. With integer scales they are
    /// multiplied by [`weight_offset`], and [`BORROW_BIAS`] is added.
    pub(crate) sums: [usize; 2],
    /// With integer scales: the negated sums of two neighbouring groups in the halves of a word,
    /// for groups of 16 and of 32.
    pub(crate) sum_pairs: [usize; 2],
    /// Words of a row.
    pub(crate) len: usize,
}

impl Int8Offsets {
    /// The offsets in a row of `k` values.
    pub(crate) const fn new(k: usize, layout: Int8Layout) -> Self {
        let scales = k / 4;
        let sums_16 = scales + k / layout.block;
        let sums_32 = sums_16 + k / 16;
        let pairs_16 = sums_32 + k / 32;
        let (pairs_32, len) = match layout.integer_scales {
            false => (pairs_16, pairs_16),
            true => (pairs_16 + k / 32, pairs_16 + k / 32 + k / 64),
        };
        Self { scales, sums: [sums_16, sums_32], sum_pairs: [pairs_16, pairs_32], len }
    }

    /// The offsets of the sums and of the sum pairs for groups of 16 or 32.
    pub(crate) fn of_group(&self, group: usize) -> (usize, usize) {
        let which = usize::from(group == 32);
        (self.sums[which], self.sum_pairs[which])
    }
}

/// Writes the parts of a row.
pub(super) struct RowWriter<'a> {
    offsets: Int8Offsets,
    pub(super) integer_scales: bool,
    words: &'a mut [i32],
    stride: usize,
}

impl<'a> RowWriter<'a> {
    #[inline(always)]
    pub(super) fn new(k: usize, layout: Int8Layout, words: &'a mut [i32], stride: usize) -> Self {
        let offsets = Int8Offsets::new(k, layout);
        Self { offsets, integer_scales: layout.integer_scales, words, stride }
    }

    #[inline(always)]
    pub(super) fn set_scale(&mut self, block: usize, scale: f32) {
        self.words[(self.offsets.scales + block) * self.stride] = scale.to_bits() as i32;
    }

    /// Writes the 32 quants of a chunk.
    #[inline(always)]
    pub(super) fn set_quants(&mut self, chunk: usize, quads: [i32; 8]) {
        let words = &mut self.words[8 * chunk * self.stride..];
        // An index, since `step_by` would divide by the stride.
        for (q, quad) in quads.into_iter().enumerate() {
            words[q * self.stride] = quad;
        }
    }

    /// Writes the negated sums of a chunk: of its first and last 16 quants, and of all 32.
    #[inline(always)]
    pub(super) fn set_sums(&mut self, chunk: usize, [a, b]: [i32; 2]) {
        let [sums_16, sums_32] = self.offsets.sums;
        let stored = |sum: i32, group| {
            if self.integer_scales { weight_offset(group) * sum + BORROW_BIAS } else { sum }
        };
        let (low, high, both) = (stored(a, 16), stored(b, 16), stored(a + b, 32));
        self.words[(sums_16 + 2 * chunk) * self.stride] = low;
        self.words[(sums_16 + 2 * chunk + 1) * self.stride] = high;
        self.words[(sums_32 + chunk) * self.stride] = both;
        if self.integer_scales {
            let [pairs_16, pairs_32] = self.offsets.sum_pairs;
            self.words[(pairs_16 + chunk) * self.stride] = a & 0xffff | b << 16;
            let pair = &mut self.words[(pairs_32 + chunk / 2) * self.stride];
            *pair = if chunk.is_multiple_of(2) { (a + b) & 0xffff } else { *pair | (a + b) << 16 };
        }
    }
}
