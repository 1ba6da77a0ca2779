//! Q8_0: the bytes as they are but with 128 added, 8 vectors a block, then 16 scales.

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::{Format, q8_0};

use super::panel::Numbers;
use super::{PANEL, Packing, panel};

/// Where the scales are in a packed block.
const SCALES: usize = 512;

pub(super) struct Q8_0;

impl Packing for Q8_0 {
    const FORMAT: Format = Format::Q8_0;
    const GROUP: usize = 32;
    const OFFSET: i32 = 128;
    const BYTES: usize = PANEL * q8_0::BYTES;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        panel::put_bytes(out, lane, &std::array::from_fn(|k| block[2 + k] ^ 0x80));
        panel::put_half(&mut out[SCALES..], lane, block);
    }

    #[inline(always)]
    fn numbers(block: &[u8], _: usize) -> Numbers {
        panel::bytes(block)
    }

    #[inline(always)]
    fn scales(block: &[u8], _: usize) -> [[f32; PANEL]; 2] {
        [panel::halves(&block[SCALES..]), [0.0; PANEL]]
    }
}
