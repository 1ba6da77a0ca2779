//! Weights repacked at load, so that kernels multiply them by quantized activations straight from
//! memory.
//!
//! 16 rows of weights form a panel. A 64-byte vector of a panel holds 4 consecutive quants of each
//! row, so that one instruction multiplies them with 4 activations. Quants are unsigned: an offset
//! is added when they are packed, and its products are subtracted by means of the sums of the
//! activations. Activations are bytes with one scale per block.
//!
//! The arithmetic inside a group, which shares a scale, is exact integer arithmetic; with integer
//! scales that of a whole quant block is. Groups and blocks are added in the order of K, with one
//! accumulator for each activation row and weight row. All instruction sets therefore give the same
//! bits, whatever the batch.
//!
//! To add a format, implement [`layout::PackedLayout`] in a new module and add a line to
//! [`PACKED_FORMATS`].

mod activations;
mod gemm;
mod layout;
mod packed;
mod panel;
// Only AVX-512 gains from unpacking.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod unpacked;

mod bf16;
mod codebook;
mod iq2_xxs;
mod iq4_nl;
mod iq4_xs;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;

#[cfg(test)]
mod tests;

use muse_core::quant::{Format, iq1_m, iq1_s, iq2_s, iq2_xs, iq3_s, iq3_xxs, mxfp4, q2_k, q3_k};

pub(crate) use activations::{ActivationFormat, MAX_TILE_ROWS, tile_rows};
pub(crate) use gemm::PanelGemm;
pub(crate) use packed::{PackedFormat, PanelKernels};
pub(crate) use panel::PANEL_ROWS;
pub(crate) use unpacked::bytes as unpacked_bytes;

use crate::kernels::Isa;
use codebook::CodebookLayout;

/// All packed formats.
static PACKED_FORMATS: [PackedFormat; 21] = [
    bf16::PACKED_FORMAT,
    PackedFormat::new::<q8_0::Q8_0>(),
    PackedFormat::new::<q4_0::Q4_0>(),
    PackedFormat::new::<q4_1::Q4_1>(),
    PackedFormat::new::<q5_0::Q5_0>(),
    PackedFormat::new::<q5_1::Q5_1>(),
    PackedFormat::new::<q4_k::Q4K>(),
    PackedFormat::new::<q5_k::Q5K>(),
    PackedFormat::new::<q6_k::Q6K>(),
    PackedFormat::new::<iq2_xxs::Iq2Xxs>(),
    PackedFormat::new::<iq4_nl::Iq4Nl>(),
    PackedFormat::new::<iq4_xs::Iq4Xs>(),
    PackedFormat::new::<CodebookLayout<q2_k::Q2K>>(),
    PackedFormat::new::<CodebookLayout<q3_k::Q3K>>(),
    PackedFormat::new::<CodebookLayout<iq1_s::Iq1S>>(),
    PackedFormat::new::<CodebookLayout<iq1_m::Iq1M>>(),
    PackedFormat::new::<CodebookLayout<iq2_xs::Iq2Xs>>(),
    PackedFormat::new::<CodebookLayout<iq2_s::Iq2S>>(),
    PackedFormat::new::<CodebookLayout<iq3_xxs::Iq3Xxs>>(),
    PackedFormat::new::<CodebookLayout<iq3_s::Iq3S>>(),
    PackedFormat::new::<CodebookLayout<mxfp4::Mxfp4>>(),
];

/// The packed format of a format and its kernels, if it has one that is worth using with this
/// instruction set.
pub(crate) fn packed_format(
    format: Format,
    isa: Isa,
) -> Option<(&'static PackedFormat, PanelKernels)> {
    let packed = PACKED_FORMATS.iter().find(|packed| packed.format == format)?;
    (packed.kernels)(isa).map(|kernels| (packed, kernels))
}
