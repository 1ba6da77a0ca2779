//! How weights of a format lie in memory once they are repacked. [`PackedLayout`] is what a format
//! implements; the gemm kernels are generic over it.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m512, __m512i};

use muse_core::quant::Format;

#[cfg(target_arch = "x86_64")]
use super::panel::avx512::QuantVectors;
use super::panel::{PANEL_ROWS, Quants};
use crate::kernels::quantize::Int8Layout;

/// Values of a row that are unpacked at a time.
pub(super) const STEP: usize = 32;
/// The largest number of pairs of groups of a quant block.
pub(super) const MAX_GROUP_PAIRS: usize = 256 / 16 / 2;

/// The packed layout of a format: quant blocks of the 16 rows of a panel, repacked together.
///
/// A value is `(quant - OFFSET) · scale - minimum`; scale and minimum belong to a group of values.
pub(super) trait PackedLayout: BlockVectors + 'static {
    /// The format of the weights in the file.
    const FORMAT: Format;
    /// Values of a row that share an activation scale, those of the file's quant block: 32 or 256.
    const BLOCK: usize = Self::FORMAT.block_values();
    /// Values of a group: 16 or 32.
    const GROUP: usize;
    /// What is added to quants to make them unsigned: 0 or a power of two.
    const OFFSET: i32;
    /// Whether the scales of a quant block are integers times a factor of the block, and quants
    /// less the offset are so small, at most
    /// [`weight_offset`](crate::kernels::quantize::weight_offset) in magnitude, that the sum of
    /// products of a group fits 16 bits.
    const INTEGER_SCALES: bool = false;
    /// Whether groups have a minimum.
    const HAS_MINIMUMS: bool = false;
    /// Bytes of a packed block: a quant block of each of the 16 rows.
    const BYTES: usize;
    /// Whether large batches unpack each panel once, as measurements suggest. It does not pay where
    /// groups have 32 values and quants lie in one piece.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    const UNPACK_FOR_BATCHES: bool = Self::BLOCK > 32;

    /// Writes a quant block of the file into lane `lane` of a zeroed packed block.
    fn pack(block: &[u8], lane: usize, out: &mut [u8]);

    /// Reads the quants of values `32 step ..` of a packed block.
    fn quants(block: &[u8], step: usize) -> Quants;

    /// Reads the scales of the same values: of both groups of 16, or of one group of 32 in the
    /// first element. Used unless [`Self::INTEGER_SCALES`].
    fn scales(_block: &[u8], _step: usize) -> [[f32; PANEL_ROWS]; 2] {
        unreachable!("{} has integer scales", Self::FORMAT)
    }

    /// Reads the integers of groups `2 pair` and `2 pair + 1`, in the low and high halves of words.
    /// Used for scales with [`Self::INTEGER_SCALES`], and for minimums where a quant block has
    /// several groups.
    fn integer_pair(_block: &[u8], _param: GroupParam, _pair: usize) -> [u32; PANEL_ROWS] {
        unreachable!("{} has no integer scales or minimums", Self::FORMAT)
    }

    /// Reads the factor of these integers; where a quant block is one group, its minimum.
    fn block_factor(_block: &[u8], _param: GroupParam) -> [f32; PANEL_ROWS] {
        unreachable!("{} has no block factors", Self::FORMAT)
    }
}

/// A parameter of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GroupParam {
    Scale,
    Minimum,
}

/// The parts of a packed block as AVX-512 vectors; see the functions of [`PackedLayout`].
#[cfg(target_arch = "x86_64")]
pub(super) trait BlockVectors {
    /// See [`PackedLayout::quants`].
    ///
    /// # Safety
    /// The CPU has AVX-512 F, BW, DQ, VL and VNNI, AVX2, FMA and F16C.
    unsafe fn quant_vectors(block: &[u8], step: usize) -> QuantVectors;

    /// See [`PackedLayout::scales`].
    ///
    /// # Safety
    /// As for [`Self::quant_vectors`].
    unsafe fn scale_vectors(_block: &[u8], _step: usize) -> [__m512; 2] {
        unreachable!("integer scales")
    }

    /// See [`PackedLayout::integer_pair`].
    ///
    /// # Safety
    /// As for [`Self::quant_vectors`].
    unsafe fn integer_pair_vector(_block: &[u8], _param: GroupParam, _pair: usize) -> __m512i {
        unreachable!("no integer scales or minimums")
    }

    /// See [`PackedLayout::block_factor`].
    ///
    /// # Safety
    /// As for [`Self::quant_vectors`].
    unsafe fn block_factor_vector(_block: &[u8], _param: GroupParam) -> __m512 {
        unreachable!("no block factors")
    }
}

/// Other architectures read packed blocks by the functions of [`PackedLayout`] alone.
#[cfg(not(target_arch = "x86_64"))]
pub(super) trait BlockVectors {}
#[cfg(not(target_arch = "x86_64"))]
impl<L: PackedLayout> BlockVectors for L {}

/// The integer of a group of a pair.
pub(super) fn integer_of(pair: u32, group: usize) -> i32 {
    i32::from((pair >> (16 * (group % 2))) as i16)
}

/// The layout of the activations that are multiplied with these weights.
pub(super) const fn activation_layout<L: PackedLayout>() -> Int8Layout {
    let integer_scales = L::INTEGER_SCALES || has_integer_minimums::<L>();
    Int8Layout { block: L::BLOCK, integer_scales }
}

/// Whether a quant block has several minimums, which are integers times a factor of the block.
pub(super) const fn has_integer_minimums<L: PackedLayout>() -> bool {
    L::HAS_MINIMUMS && L::BLOCK > L::GROUP
}
