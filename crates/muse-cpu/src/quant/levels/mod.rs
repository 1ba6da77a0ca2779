//! Formats that core tells as levels, laid out alike: for each 32 values 4 vectors of indices, then
//! for each group 16 scales; behind the values of a block what those count in and, where there are
//! any, minimums, of each row those of two groups side by side, and what those count in. Four bits a
//! value are more than the file has, but grids and odd bits would cost more to take apart at each
//! product than reading them does.

#[cfg(target_arch = "x86_64")]
mod avx512;

use std::marker::PhantomData;

use muse_core::quant::{Format, Leveled};

use super::{MOST_PAIRS, Minimums, PANEL, Packing, STEP, Step, panel};

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
    const OFFSET: i32 = 64;
    const MINIMUMS: bool = F::MINIMUMS;
    const BYTES: usize = Self::MINIMUM_UNITS + 4 * PANEL * F::MINIMUMS as usize;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        let steps = &mut out[..Self::UNITS];
        for (step, out) in steps.chunks_exact_mut(Self::STEP_BYTES).enumerate() {
            let index = |k| F::index(block, STEP * step + k);
            panel::put_nibbles(out, lane, &std::array::from_fn(index));
            for i in 0..Self::GROUPS {
                let group = Self::GROUPS * step + i;
                out[INDICES + PANEL * i + lane] = F::scale(block, group) as u8;
            }
        }
        panel::put_word(&mut out[Self::UNITS..], lane, F::unit(block).to_bits());
        if F::MINIMUMS {
            for group in 0..2 * Self::PAIRS {
                let at = 2 * PANEL * (group / 2) + 2 * lane + group % 2;
                out[Self::MINIMUMS_AT + at] = F::minimum(block, group);
            }
            let unit = F::minimum_unit(block).to_bits();
            panel::put_word(&mut out[Self::MINIMUM_UNITS..], lane, unit);
        }
    }

    #[inline(always)]
    fn unpack(block: &[u8], step: usize) -> Step {
        let from = &block[Self::STEP_BYTES * step..][..Self::STEP_BYTES];
        let mut numbers = panel::nibbles(from);
        for number in numbers.as_flattened_mut() {
            *number = Self::TABLE[usize::from(*number)];
        }
        let units = panel::words(&block[Self::UNITS..]).map(f32::from_bits);
        let mut scales = [[0.0; PANEL]; 2];
        for (group, scales) in scales.iter_mut().take(Self::GROUPS).enumerate() {
            let scale = |lane| f32::from(from[INDICES + PANEL * group + lane] as i8);
            *scales = std::array::from_fn(|lane| units[lane] * scale(lane));
        }
        Step { numbers, scales }
    }

    #[inline(always)]
    fn minimums(block: &[u8]) -> Minimums {
        let mut pairs = [[0; PANEL]; MOST_PAIRS];
        for (pair, numbers) in pairs.iter_mut().take(Self::PAIRS).enumerate() {
            let both = &block[Self::MINIMUMS_AT + 2 * PANEL * pair..][..2 * PANEL];
            let both = both.as_chunks::<2>().0;
            let number = |lane: usize, half: usize| u32::from(both[lane][half]);
            *numbers = std::array::from_fn(|lane| number(lane, 0) | number(lane, 1) << 16);
        }
        let unit = panel::words(&block[Self::MINIMUM_UNITS..]).map(f32::from_bits);
        Minimums { pairs, unit }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn unpack_avx512(block: &[u8], step: usize) -> super::rows::avx512::Step {
        avx512::unpack::<F>(block, step)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn minimums_avx512(block: &[u8]) -> super::rows::avx512::Minimums {
        avx512::minimums::<F>(block)
    }
}
