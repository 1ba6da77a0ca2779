//! Packed IQ4_NL: 4 vectors of codebook indices per block, then 16 scales. Quants are the codebook
//! values, with 128 added.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;

use muse_core::quant::iq4_nl::CODEBOOK;
use muse_core::quant::{Format, iq4_nl};

use super::layout::PackedLayout;
use super::panel::{self, PANEL_ROWS, Quants};

/// Offset of the scales in a packed block.
const SCALES: usize = 256;

pub(super) struct Iq4Nl;

impl PackedLayout for Iq4Nl {
    const FORMAT: Format = Format::Iq4Nl;
    const GROUP: usize = 32;
    const OFFSET: i32 = 128;
    const BYTES: usize = PANEL_ROWS * iq4_nl::BYTES;

    fn pack(block: &[u8], lane: usize, out: &mut [u8]) {
        panel::put_nibbles(out, lane, &std::array::from_fn(|k| iq4_nl::index(block, k)));
        panel::put_half(&mut out[SCALES..], lane, block);
    }

    #[inline(always)]
    fn quants(block: &[u8], _: usize) -> Quants {
        codebook_values(block)
    }

    #[inline(always)]
    fn scales(block: &[u8], _: usize) -> [[f32; PANEL_ROWS]; 2] {
        [panel::halves(&block[SCALES..]), [0.0; PANEL_ROWS]]
    }
}

/// The codebook value of an index, with 128 added.
fn codebook_value(index: u8) -> u8 {
    CODEBOOK[usize::from(index)] as u8 ^ 0x80
}

/// The codebook values of the indices in 4 vectors.
#[inline(always)]
pub(super) fn codebook_values(from: &[u8]) -> Quants {
    let mut quants = panel::nibbles(from);
    for quant in quants.as_flattened_mut() {
        *quant = codebook_value(*quant);
    }
    quants
}
