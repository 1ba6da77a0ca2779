//! The order of the values of a KV block whose pairs are interleaved.

use muse_core::contract::KV_BLOCK_SIZE;

/// Head widths must be multiples of this.
pub const LANES: usize = 16;
/// Bytes of a pair of BF16.
pub(super) const PAIR_BYTES: usize = 4;

/// Byte offset of a column of the key at `position` in the KV block of a head.
pub(crate) fn k_offset(position: usize, col: usize) -> usize {
    (col / 2 * KV_BLOCK_SIZE + position) * PAIR_BYTES + col % 2 * 2
}

/// Byte offset of a column of the value at `position` in the KV block of a head of width `dim`.
pub(crate) fn v_offset(position: usize, col: usize, dim: usize) -> usize {
    (position / 2 * dim + col) * PAIR_BYTES + position % 2 * 2
}
