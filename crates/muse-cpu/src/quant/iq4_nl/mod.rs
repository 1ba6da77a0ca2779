//! IQ4_NL: 4 vectors of indices a block, then 16 scales; an index becomes its level, 128 added.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;

use muse_core::quant::iq4_nl::LEVELS;
use muse_core::quant::{Format, iq4_nl};

use super::panel::Numbers;
use super::{PANEL, Packing, panel};

/// Where the scales are in a packed block.
const SCALES: usize = 256;

pub(super) struct Iq4Nl;

impl Packing for Iq4Nl {
    const FORMAT: Format = Format::Iq4Nl;
    const GROUP: usize = 32;
    const OFFSET: i32 = 128;
    const BYTES: usize = PANEL * iq4_nl::BYTES;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        panel::put_nibbles(out, lane, &std::array::from_fn(|k| iq4_nl::index(block, k)));
        panel::put_half(&mut out[SCALES..], lane, block);
    }

    #[inline(always)]
    fn numbers(block: &[u8], _: usize) -> Numbers {
        levels(block)
    }

    #[inline(always)]
    fn scales(block: &[u8], _: usize) -> [[f32; PANEL]; 2] {
        [panel::halves(&block[SCALES..]), [0.0; PANEL]]
    }
}

/// The level of an index, 128 added.
fn level(index: u8) -> u8 {
    LEVELS[usize::from(index)] as u8 ^ 0x80
}

/// Levels of the indices in 4 vectors.
#[inline(always)]
pub(super) fn levels(from: &[u8]) -> Numbers {
    let mut numbers = panel::nibbles(from);
    for number in numbers.as_flattened_mut() {
        *number = level(*number);
    }
    numbers
}
