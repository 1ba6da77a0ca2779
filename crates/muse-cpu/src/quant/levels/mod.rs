//! Formats that core tells as levels, laid out alike: for each 32 values 4 vectors of indices, then
//! for each group 16 scales and, where there are any, 16 minimums; behind the values of a block what
//! those count in. Four bits a value are more than the file has, but grids and odd bits would cost
//! more to take apart at each product than reading them does.

#[cfg(target_arch = "x86_64")]
mod avx512;

use std::marker::PhantomData;

use muse_core::quant::{Format, Leveled};

use super::{PANEL, Packing, STEP, Step, panel};

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
    /// Bytes of 32 values: indices, scales, minimums.
    const STEP_BYTES: usize = INDICES + Self::GROUPS * PANEL * (1 + F::MINIMUMS as usize);
    /// Where the minimums are in these.
    const MINIMUMS_AT: usize = INDICES + Self::GROUPS * PANEL;
    /// Where units are in a block, those of minimums last.
    const UNITS: usize = F::VALUES / STEP * Self::STEP_BYTES;
    const MINIMUM_UNITS: usize = Self::UNITS + 4 * PANEL;
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
    const BYTES: usize = Self::UNITS + 4 * PANEL * (1 + F::MINIMUMS as usize);

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        let (steps, units) = out.split_at_mut(Self::UNITS);
        for (step, out) in steps.chunks_exact_mut(Self::STEP_BYTES).enumerate() {
            let index = |k| F::index(block, STEP * step + k);
            panel::put_nibbles(out, lane, &std::array::from_fn(index));
            for i in 0..Self::GROUPS {
                let group = Self::GROUPS * step + i;
                out[INDICES + PANEL * i + lane] = F::scale(block, group) as u8;
                if F::MINIMUMS {
                    out[Self::MINIMUMS_AT + PANEL * i + lane] = F::minimum(block, group);
                }
            }
        }
        panel::put_word(units, lane, F::unit(block).to_bits());
        if F::MINIMUMS {
            panel::put_word(&mut units[4 * PANEL..], lane, F::minimum_unit(block).to_bits());
        }
    }

    #[inline(always)]
    fn unpack(block: &[u8], step: usize) -> Step {
        let from = &block[Self::STEP_BYTES * step..][..Self::STEP_BYTES];
        let mut numbers = panel::nibbles(from);
        for number in numbers.as_flattened_mut() {
            *number = Self::TABLE[usize::from(*number)];
        }
        // Scales, or minimums, of the groups, times their units.
        let times = |at: usize, units: usize| {
            let units = panel::words(&block[units..]).map(f32::from_bits);
            let of = |group: usize, lane: usize| {
                if group >= Self::GROUPS {
                    return 0.0;
                }
                units[lane] * f32::from(from[at + PANEL * group + lane] as i8)
            };
            [0, 1].map(|group| std::array::from_fn(|lane| of(group, lane)))
        };
        let scales = times(INDICES, Self::UNITS);
        let minimums = if F::MINIMUMS {
            times(Self::MINIMUMS_AT, Self::MINIMUM_UNITS)
        } else {
            [[0.0; PANEL]; 2]
        };
        Step { numbers, scales, minimums }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    unsafe fn unpack_avx512(block: &[u8], step: usize) -> super::rows::avx512::Step {
        avx512::unpack::<F>(block, step)
    }
}
