//! The packed layout of all formats that implement [`Codebook`]. For each step of 32 values there
//! are 4 vectors of codebook indices, then 16 scales for each group; integer scales of the two
//! groups of a step are side by side for each row. The 16 factors of scales follow the steps of a
//! block, then the minimums, if there are any, of two groups side by side for each row, and their
//! factors.
//!
//! Four bits per value are more than the file has, but unpacking grid points and odd numbers of
//! bits in the kernel would cost more than reading the additional bits does.

#[cfg(target_arch = "x86_64")]
mod avx512;

use std::marker::PhantomData;

use muse_core::quant::{Codebook, Format};

use super::layout::{GroupParam, PackedLayout, STEP};
use super::panel::{self, PANEL_ROWS, Quants};
use crate::kernels::quantize::weight_offset;

/// Bytes of the indices of a step of 16 rows.
const INDICES: usize = 256;

/// A codebook format with its name.
pub(super) trait CodebookFormat: Codebook + 'static {
    /// The format of the weights in the file.
    const FORMAT: Format;
}

macro_rules! codebook_formats {
    ($($module:ident::$codebook:ident = $format:ident;)*) => {
        $(impl CodebookFormat for muse_core::quant::$module::$codebook {
            const FORMAT: Format = Format::$format;
        })*
    };
}

codebook_formats! {
    q2_k::Q2K = Q2K;
    q3_k::Q3K = Q3K;
    iq1_s::Iq1S = Iq1S;
    iq1_m::Iq1M = Iq1M;
    iq2_xs::Iq2Xs = Iq2Xs;
    iq2_s::Iq2S = Iq2S;
    iq3_xxs::Iq3Xxs = Iq3Xxs;
    iq3_s::Iq3S = Iq3S;
    mxfp4::Mxfp4 = Mxfp4;
}

/// The packed layout of a codebook format.
pub(super) struct CodebookLayout<C>(PhantomData<C>);

impl<C: CodebookFormat> CodebookLayout<C> {
    /// Groups of a step.
    const GROUPS: usize = STEP / C::GROUP;
    /// Bytes of a step: indices, scales.
    const STEP_BYTES: usize = INDICES + Self::GROUPS * PANEL_ROWS;
    /// Offsets of the factors of scales in a block, of the minimums and of their factors.
    const FACTORS: usize = C::VALUES / STEP * Self::STEP_BYTES;
    const MINIMUMS_AT: usize = Self::FACTORS + 4 * PANEL_ROWS;
    const MINIMUM_FACTORS: usize = Self::MINIMUMS_AT + Self::PAIRS * 2 * PANEL_ROWS;
    /// Pairs of minimums of a block.
    const PAIRS: usize = if C::HAS_MINIMUMS { C::VALUES / C::GROUP / 2 } else { 0 };
    /// The largest magnitude in the codebook, and whether a value is negative.
    const MAX_ABS_AND_SIGNED: (i32, bool) = {
        let (mut max_abs, mut signed, mut i) = (0, false, 0);
        while i < 16 {
            let value = C::CODEBOOK[i] as i32;
            signed = signed || value < 0;
            max_abs = if value.abs() > max_abs { value.abs() } else { max_abs };
            i += 1;
        }
        (max_abs, signed)
    };

    /// Offset of the integers of two groups in a block.
    const fn integer_pair_at(param: GroupParam, pair: usize) -> usize {
        match param {
            GroupParam::Scale => Self::STEP_BYTES * pair + INDICES,
            GroupParam::Minimum => Self::MINIMUMS_AT + 2 * PANEL_ROWS * pair,
        }
    }

    /// Offset of the factors of these integers.
    const fn factor_at(param: GroupParam) -> usize {
        match param {
            GroupParam::Scale => Self::FACTORS,
            GroupParam::Minimum => Self::MINIMUM_FACTORS,
        }
    }

    /// Offset of the scale of a group in its step.
    const fn scale_at(group: usize, lane: usize) -> usize {
        INDICES
            + if <Self as PackedLayout>::INTEGER_SCALES {
                2 * lane + group
            } else {
                PANEL_ROWS * group + lane
            }
    }

    /// The codebook, with the offset added.
    const TABLE: [u8; 16] = {
        let (mut table, mut i) = ([0; 16], 0);
        while i < 16 {
            table[i] = (C::CODEBOOK[i] as i32 + <Self as PackedLayout>::OFFSET) as u8;
            i += 1;
        }
        table
    };
}

impl<C: CodebookFormat> PackedLayout for CodebookLayout<C> {
    const FORMAT: Format = C::FORMAT;
    const GROUP: usize = C::GROUP;
    const OFFSET: i32 = match (Self::INTEGER_SCALES, Self::MAX_ABS_AND_SIGNED.1) {
        (true, false) => 0,
        (true, true) => weight_offset(C::GROUP),
        (false, _) => 64,
    };
    const INTEGER_SCALES: bool =
        C::VALUES == 256 && C::GROUP == 16 && Self::MAX_ABS_AND_SIGNED.0 <= weight_offset(16);
    const HAS_MINIMUMS: bool = C::HAS_MINIMUMS;
    const BYTES: usize = Self::MINIMUM_FACTORS + 4 * PANEL_ROWS * C::HAS_MINIMUMS as usize;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        let steps = &mut out[..Self::FACTORS];
        for (step, out) in steps.chunks_exact_mut(Self::STEP_BYTES).enumerate() {
            let index = |k| C::index(block, STEP * step + k);
            panel::put_nibbles(out, lane, &std::array::from_fn(index));
            for i in 0..Self::GROUPS {
                let group = Self::GROUPS * step + i;
                out[Self::scale_at(i, lane)] = C::scale(block, group) as u8;
            }
        }
        panel::put_word(&mut out[Self::FACTORS..], lane, C::block_scale(block).to_bits());
        if C::HAS_MINIMUMS {
            for group in 0..2 * Self::PAIRS {
                let pair = Self::integer_pair_at(GroupParam::Minimum, group / 2);
                out[pair + 2 * lane + group % 2] = C::minimum(block, group);
            }
            let factor = C::block_minimum(block).to_bits();
            panel::put_word(&mut out[Self::MINIMUM_FACTORS..], lane, factor);
        }
    }

    #[inline(always)]
    fn quants(block: &[u8], step: usize) -> Quants {
        let mut quants = panel::nibbles(&block[Self::STEP_BYTES * step..]);
        for quant in quants.as_flattened_mut() {
            *quant = Self::TABLE[usize::from(*quant)];
        }
        quants
    }

    #[inline(always)]
    fn scales(block: &[u8], step: usize) -> [[f32; PANEL_ROWS]; 2] {
        let from = &block[Self::STEP_BYTES * step..][..Self::STEP_BYTES];
        let factors = Self::block_factor(block, GroupParam::Scale);
        let mut scales = [[0.0; PANEL_ROWS]; 2];
        for (group, scales) in scales.iter_mut().take(Self::GROUPS).enumerate() {
            let scale = |lane| f32::from(from[Self::scale_at(group, lane)] as i8);
            *scales = std::array::from_fn(|lane| factors[lane] * scale(lane));
        }
        scales
    }

    #[inline(always)]
    fn integer_pair(block: &[u8], param: GroupParam, pair: usize) -> [u32; PANEL_ROWS] {
        panel::byte_pairs(&block[Self::integer_pair_at(param, pair)..])
    }

    #[inline(always)]
    fn block_factor(block: &[u8], param: GroupParam) -> [f32; PANEL_ROWS] {
        panel::words(&block[Self::factor_at(param)..]).map(f32::from_bits)
    }
}
