//! Packed IQ4_XS: 4 vectors of codebook indices, as in IQ4_NL, for each of 8 groups; then, for each
//! row, a word of the low bits of all scales and a half word of their high bits; then 16 factors of
//! scales (`d`).

#[cfg(target_arch = "x86_64")]
mod avx512;

use muse_core::quant::{Format, iq4_xs};

use super::iq4_nl::codebook_values;
use super::layout::PackedLayout;
use super::panel::{self, PANEL_ROWS, Quants};

/// Bytes of the indices of a group.
const INDICES: usize = 256;
/// Offsets of the low bits, of the high bits and of the factors in a packed block.
const LOW: usize = 8 * INDICES;
const HIGH: usize = LOW + 64;
const FACTORS: usize = HIGH + 32;

pub(super) struct Iq4Xs;

impl PackedLayout for Iq4Xs {
    const FORMAT: Format = Format::Iq4Xs;
    const GROUP: usize = 32;
    const OFFSET: i32 = 128;
    const BYTES: usize = PANEL_ROWS * iq4_xs::BYTES;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        for group in 0..8 {
            let index = |k| iq4_xs::index(block, 32 * group + k);
            panel::put_nibbles(&mut out[INDICES * group..], lane, &std::array::from_fn(index));
            let low = u32::from(iq4_xs::scale(block, group) & 15);
            panel::put_word(&mut out[LOW..], lane, low << (4 * group));
        }
        panel::put_half(&mut out[HIGH..], lane, &block[2..]);
        panel::put_half(&mut out[FACTORS..], lane, block);
    }

    #[inline(always)]
    fn quants(block: &[u8], step: usize) -> Quants {
        codebook_values(&block[INDICES * step..])
    }

    #[inline(always)]
    fn scales(block: &[u8], step: usize) -> [[f32; PANEL_ROWS]; 2] {
        let (d, low) = (panel::halves(&block[FACTORS..]), panel::words(&block[LOW..]));
        let high = block[HIGH..FACTORS].as_chunks::<2>().0;
        let scale = |lane: usize| {
            let high = u32::from(u16::from_le_bytes(high[lane])) >> (2 * step) & 3;
            let scale = low[lane] >> (4 * step) & 15 | high << 4;
            d[lane] * (scale as i32 - 32) as f32
        };
        [std::array::from_fn(scale), [0.0; PANEL_ROWS]]
    }
}
