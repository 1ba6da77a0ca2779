//! Q5_0: 4 vectors of nibbles and 8 masks of fifth bits a block, then 16 scales.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;

use muse_core::quant::{Format, q5_0};

use super::panel::Numbers;
use super::{PANEL, Packing, panel};

/// Where the fifth bits and the scales are in a packed block.
const FIFTH: usize = 256;
const SCALES: usize = FIFTH + 64;

pub(super) struct Q5_0;

impl Packing for Q5_0 {
    const FORMAT: Format = Format::Q5_0;
    const GROUP: usize = 32;
    const OFFSET: i32 = 16;
    const BYTES: usize = PANEL * q5_0::BYTES;
    const EXPANDS: bool = true;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        put_numbers(out, lane, &std::array::from_fn(|k| q5_0::number(block, k)));
        panel::put_half(&mut out[SCALES..], lane, block);
    }

    #[inline(always)]
    fn numbers(block: &[u8], _: usize) -> Numbers {
        numbers(block)
    }

    #[inline(always)]
    fn scales(block: &[u8], _: usize) -> [[f32; PANEL]; 2] {
        [panel::halves(&block[SCALES..]), [0.0; PANEL]]
    }
}

/// Lays 32 numbers of five bits out: 4 vectors of nibbles, 8 masks.
pub(super) fn put_numbers(out: &mut [u8], lane: usize, numbers: &[u8; 32]) {
    panel::put_nibbles(out, lane, numbers);
    panel::put_bits(&mut out[FIFTH..], lane, &numbers.map(|number| number >> 4));
}

/// The numbers as they were put.
#[inline(always)]
pub(super) fn numbers(from: &[u8]) -> Numbers {
    let (mut numbers, fifth) = (panel::nibbles(from), panel::bits(&from[FIFTH..]));
    for (number, fifth) in numbers.as_flattened_mut().iter_mut().zip(fifth.as_flattened()) {
        *number |= fifth << 4;
    }
    numbers
}
