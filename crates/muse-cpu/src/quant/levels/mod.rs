//! Formats that core tells as levels, laid out alike: for each 32 values 4 vectors of indices, then
//! for each group 16 scales, whole ones of the two groups of a row side by side; behind the values of a
//! block what those count in and, where there are any, minimums, of each row those of two groups side
//! by side, and what those count in. Four bits a
//! value are more than the file has, but grids and odd bits would cost more to take apart at each
//! product than reading them does.

#[cfg(target_arch = "x86_64")]
mod avx512;

use std::marker::PhantomData;

use muse_core::quant::{Format, Leveled};

use super::panel::Numbers;
use super::{Of, PANEL, Packing, STEP, panel};
use crate::kernels::quantize::centre;

/// Bytes of the indices of 32 values of 16 rows.
const INDICES: usize = 256;

/// A format told as levels.
pub(super) trait Form: Leveled + 'static {
    /// The format of the file.
    const FORMAT: Format;
}

macro_rules! forms {
    ($($module:ident::$form:ident = $format:ident;)*) => {
        $(impl Form for muse_core::quant::$module::$form {
            const FORMAT: Format = Format::$format;
        })*
    };
}

forms! {
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

/// The layout of a format told as levels.
pub(super) struct Levels<F>(PhantomData<F>);

impl<F: Form> Levels<F> {
    /// Groups of 32 values.
    const GROUPS: usize = STEP / F::GROUP;
    /// Bytes of 32 values: indices, scales.
    const STEP_BYTES: usize = INDICES + Self::GROUPS * PANEL;
    /// Where units are in a block, minimums, and the units of these.
    const UNITS: usize = F::VALUES / STEP * Self::STEP_BYTES;
    const MINIMUMS_AT: usize = Self::UNITS + 4 * PANEL;
    const MINIMUM_UNITS: usize = Self::MINIMUMS_AT + Self::PAIRS * 2 * PANEL;
    /// Pairs of groups of a block that have minimums.
    const PAIRS: usize = if F::MINIMUMS { F::VALUES / F::GROUP / 2 } else { 0 };
    /// The largest size of a level, and whether one is negative.
    const SIZE: (i32, bool) = {
        let (mut most, mut signed, mut i) = (0, false, 0);
        while i < 16 {
            let level = F::LEVELS[i] as i32;
            signed = signed || level < 0;
            most = if level.abs() > most { level.abs() } else { most };
            i += 1;
        }
        (most, signed)
    };

    /// Where multiples of two groups are in a block, and what they count in.
    const fn pair_at(of: Of, pair: usize) -> usize {
        match of {
            Of::Scales => Self::STEP_BYTES * pair + INDICES,
            Of::Minimums => Self::MINIMUMS_AT + 2 * PANEL * pair,
        }
    }

    const fn unit_at(of: Of) -> usize {
        match of {
            Of::Scales => Self::UNITS,
            Of::Minimums => Self::MINIMUM_UNITS,
        }
    }

    /// Where the scale of a group of a step is in the step's bytes.
    const fn scale_at(group: usize, lane: usize) -> usize {
        INDICES + if <Self as Packing>::WHOLE { 2 * lane + group } else { PANEL * group + lane }
    }

    /// The levels with the offset.
    const TABLE: [u8; 16] = {
        let (mut table, mut i) = ([0; 16], 0);
        while i < 16 {
            table[i] = (F::LEVELS[i] as i32 + <Self as Packing>::OFFSET) as u8;
            i += 1;
        }
        table
    };
}

impl<F: Form> Packing for Levels<F> {
    const FORMAT: Format = F::FORMAT;
    const GROUP: usize = F::GROUP;
    const OFFSET: i32 = match (Self::WHOLE, Self::SIZE.1) {
        (true, false) => 0,
        (true, true) => centre(F::GROUP),
        (false, _) => 64,
    };
    const WHOLE: bool = F::VALUES == 256 && F::GROUP == 16 && Self::SIZE.0 <= centre(16);
    const MINIMUMS: bool = F::MINIMUMS;
    const BYTES: usize = Self::MINIMUM_UNITS + 4 * PANEL * F::MINIMUMS as usize;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        let steps = &mut out[..Self::UNITS];
        for (step, out) in steps.chunks_exact_mut(Self::STEP_BYTES).enumerate() {
            let index = |k| F::index(block, STEP * step + k);
            panel::put_nibbles(out, lane, &std::array::from_fn(index));
            for i in 0..Self::GROUPS {
                let group = Self::GROUPS * step + i;
                out[Self::scale_at(i, lane)] = F::scale(block, group) as u8;
            }
        }
        panel::put_word(&mut out[Self::UNITS..], lane, F::unit(block).to_bits());
        if F::MINIMUMS {
            for group in 0..2 * Self::PAIRS {
                let pair = Self::pair_at(Of::Minimums, group / 2);
                out[pair + 2 * lane + group % 2] = F::minimum(block, group);
            }
            let unit = F::minimum_unit(block).to_bits();
            panel::put_word(&mut out[Self::MINIMUM_UNITS..], lane, unit);
        }
    }

    #[inline(always)]
    fn numbers(block: &[u8], step: usize) -> Numbers {
        let mut numbers = panel::nibbles(&block[Self::STEP_BYTES * step..]);
        for number in numbers.as_flattened_mut() {
            *number = Self::TABLE[usize::from(*number)];
        }
        numbers
    }

    #[inline(always)]
    fn scales(block: &[u8], step: usize) -> [[f32; PANEL]; 2] {
        let from = &block[Self::STEP_BYTES * step..][..Self::STEP_BYTES];
        let units = Self::unit(block, Of::Scales);
        let mut scales = [[0.0; PANEL]; 2];
        for (group, scales) in scales.iter_mut().take(Self::GROUPS).enumerate() {
            let scale = |lane| f32::from(from[Self::scale_at(group, lane)] as i8);
            *scales = std::array::from_fn(|lane| units[lane] * scale(lane));
        }
        scales
    }

    #[inline(always)]
    fn pair(block: &[u8], of: Of, pair: usize) -> [u32; PANEL] {
        panel::byte_pairs(&block[Self::pair_at(of, pair)..])
    }

    #[inline(always)]
    fn unit(block: &[u8], of: Of) -> [f32; PANEL] {
        panel::words(&block[Self::unit_at(of)..]).map(f32::from_bits)
    }
}
