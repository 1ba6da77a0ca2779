//! IQ4_XS: for each of 8 groups 4 vectors of indices as IQ4_NL has them; then the low bits of the
//! groups' scales as words of the rows, the high bits as half words, and 16 scales of scales.

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::{Format, iq4_xs};

use super::iq4_nl::levels;
use super::panel::Numbers;
use super::{PANEL, Packing, panel};

/// Bytes of a group's indices.
const INDICES: usize = 256;
const LOW: usize = 8 * INDICES;
const HIGH: usize = LOW + 64;
const D: usize = HIGH + 32;

pub(super) struct Iq4Xs;

impl Packing for Iq4Xs {
    const FORMAT: Format = Format::Iq4Xs;
    const GROUP: usize = 32;
    const OFFSET: i32 = 128;
    const BYTES: usize = PANEL * iq4_xs::BYTES;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        for group in 0..8 {
            let index = |k| iq4_xs::index(block, 32 * group + k);
            panel::put_nibbles(&mut out[INDICES * group..], lane, &std::array::from_fn(index));
            let low = u32::from(iq4_xs::scale(block, group) & 15);
            panel::put_word(&mut out[LOW..], lane, low << (4 * group));
        }
        panel::put_half(&mut out[HIGH..], lane, &block[2..]);
        panel::put_half(&mut out[D..], lane, block);
    }

    #[inline(always)]
    fn numbers(block: &[u8], step: usize) -> Numbers {
        levels(&block[INDICES * step..])
    }

    #[inline(always)]
    fn scales(block: &[u8], step: usize) -> [[f32; PANEL]; 2] {
        let (d, low) = (panel::halves(&block[D..]), panel::words(&block[LOW..]));
        let high = block[HIGH..D].as_chunks::<2>().0;
        let scale = |lane: usize| {
            let high = u32::from(u16::from_le_bytes(high[lane])) >> (2 * step) & 3;
            let scale = low[lane] >> (4 * step) & 15 | high << 4;
            d[lane] * (scale as i32 - 32) as f32
        };
        [std::array::from_fn(scale), [0.0; PANEL]]
    }
}
