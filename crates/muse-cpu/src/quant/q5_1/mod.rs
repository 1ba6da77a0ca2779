//! Q5_1: numbers as Q5_0 has them, then 16 scales and 16 minimums, which the file adds.

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::{Format, q5_1};

use super::panel::Numbers;
use super::q5_0::{numbers, put_numbers};
use super::{Of, PANEL, Packing, panel};

/// Where the scales and the minimums are in a packed block.
const SCALES: usize = 256 + 64;
const MINIMUMS: usize = SCALES + 32;

pub(super) struct Q5_1;

impl Packing for Q5_1 {
    const FORMAT: Format = Format::Q5_1;
    const GROUP: usize = 32;
    const OFFSET: i32 = 0;
    const MINIMUMS: bool = true;
    const BYTES: usize = PANEL * q5_1::BYTES;
    const EXPANDS: bool = true;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        put_numbers(out, lane, &std::array::from_fn(|k| q5_1::number(block, k)));
        panel::put_half(&mut out[SCALES..], lane, block);
        panel::put_half(&mut out[MINIMUMS..], lane, &block[2..]);
    }

    #[inline(always)]
    fn numbers(block: &[u8], _: usize) -> Numbers {
        numbers(block)
    }

    #[inline(always)]
    fn scales(block: &[u8], _: usize) -> [[f32; PANEL]; 2] {
        [panel::halves(&block[SCALES..]), [0.0; PANEL]]
    }

    #[inline(always)]
    fn unit(block: &[u8], _: Of) -> [f32; PANEL] {
        panel::halves(&block[MINIMUMS..]).map(|minimum| -minimum)
    }
}
