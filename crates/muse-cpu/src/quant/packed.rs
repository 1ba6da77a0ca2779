//! Packed formats as data: how a matrix is repacked and decoded, and which kernels multiply it.

use muse_core::Result;
use muse_core::contract::WeightView;
use muse_core::quant::Format;

use super::activations::ActivationFormat;
use super::gemm::{self, PanelGemm};
use super::layout::{GroupParam, PackedLayout, STEP, activation_layout, integer_of};
use super::panel::PANEL_ROWS;
use super::unpacked::Unpack;
#[cfg(target_arch = "x86_64")]
use super::unpacked::{Unpacked, unpack};
use crate::aligned::Aligned;
use crate::kernels::quantize::weight_offset;
use crate::kernels::{Isa, Level};
use crate::pool::Pool;
use crate::split::chunks;

/// A packed format.
pub(crate) struct PackedFormat {
    /// The format of the weights in the file.
    pub(super) format: Format,
    /// The format of the activations that are multiplied with these weights.
    pub(crate) activations: ActivationFormat,
    /// Bytes of a panel of rows of `k` values.
    pub(super) panel_bytes: fn(k: usize) -> usize,
    /// Writes a row of the file into a lane of a zeroed panel.
    pub(super) pack_row: fn(row: &[u8], lane: usize, panel: &mut [u8]),
    /// Decodes a lane of a panel.
    pub(super) decode_row: fn(panel: &[u8], lane: usize, out: &mut [f32]),
    /// The kernels for an instruction set; `None` where decoding the bytes of the file to `f32` is
    /// faster.
    pub(super) kernels: fn(Isa) -> Option<PanelKernels>,
}

/// The kernels of one packed format and instruction set.
#[derive(Clone, Copy)]
pub(crate) struct PanelKernels {
    /// Multiplies packed panels.
    pub(crate) packed: PanelGemm,
    /// Unpacks a panel for a large batch and multiplies unpacked panels; `None` where multiplying
    /// packed panels is as fast.
    pub(crate) unpacked: Option<(Unpack, PanelGemm)>,
}

impl PackedFormat {
    /// The packed format of a layout.
    pub(super) const fn new<L: PackedLayout>() -> Self {
        // Kernels rely on these when they read activations unchecked.
        assert!(L::BLOCK.is_multiple_of(STEP) && matches!(L::GROUP, 16 | 32), "whole groups");
        assert!(L::BYTES.is_multiple_of(L::BLOCK / STEP), "steps of equal size");
        let activations = activation_layout::<L>();
        assert!(L::BLOCK == 256 || !activations.integer_scales, "sum pairs need blocks of 256");
        assert!(
            !L::INTEGER_SCALES || L::OFFSET == 0 || L::OFFSET == weight_offset(L::GROUP),
            "group sums are stored multiplied by the offset"
        );
        Self {
            format: L::FORMAT,
            activations: ActivationFormat::Int8(activations),
            panel_bytes: |k| k / L::BLOCK * L::BYTES,
            pack_row: pack_row::<L>,
            decode_row: decode_row::<L>,
            kernels: kernels::<L>,
        }
    }

    /// Bytes of a panel of rows of `k` values.
    pub(crate) fn panel_bytes(&self, k: usize) -> usize {
        (self.panel_bytes)(k)
    }

    /// Bytes of a repacked matrix.
    pub(crate) fn bytes_for(&self, rows: usize, cols: usize) -> usize {
        rows.div_ceil(PANEL_ROWS) * self.panel_bytes(cols)
    }

    /// Repacks a matrix; rows that pad the last panel are zero.
    pub(crate) fn repack(&self, view: &WeightView<'_>, pool: &Pool) -> Result<Aligned<u8>> {
        let panel = self.panel_bytes(view.cols);
        let mut packed = Aligned::zeroed(self.bytes_for(view.rows, view.cols))?;
        let row_bytes = self.format.bytes_for(view.cols);
        chunks(pool, &mut packed, panel, |index, panel| {
            let rows = view.bytes[index * PANEL_ROWS * row_bytes..].chunks_exact(row_bytes);
            for (lane, row) in rows.take(PANEL_ROWS).enumerate() {
                (self.pack_row)(row, lane, panel);
            }
        });
        Ok(packed)
    }

    /// Decodes row `row` of a repacked matrix.
    pub(crate) fn decode_row(&self, packed: &[u8], row: usize, out: &mut [f32]) {
        let panel = self.panel_bytes(out.len());
        let packed = &packed[row / PANEL_ROWS * panel..][..panel];
        (self.decode_row)(packed, row % PANEL_ROWS, out);
    }
}

fn pack_row<L: PackedLayout>(row: &[u8], lane: usize, panel: &mut [u8]) {
    let blocks = row.chunks_exact(L::FORMAT.block_bytes());
    for (out, block) in panel.chunks_exact_mut(L::BYTES).zip(blocks) {
        L::pack(block, lane, out);
    }
}

fn decode_row<L: PackedLayout>(panel: &[u8], lane: usize, out: &mut [f32]) {
    let blocks = panel.chunks_exact(L::BYTES);
    for (block, out) in blocks.zip(out.chunks_exact_mut(L::BLOCK)) {
        let param = |param: GroupParam, group: usize| {
            let integer = match L::BLOCK == L::GROUP {
                true => 1,
                false => integer_of(L::integer_pair(block, param, group / 2)[lane], group),
            };
            L::block_factor(block, param)[lane] * integer as f32
        };
        for (group, out) in out.chunks_exact_mut(L::GROUP).enumerate() {
            let (step, first) = (group * L::GROUP / STEP, group * L::GROUP % STEP);
            let quants = L::quants(block, step);
            let scale = match L::INTEGER_SCALES {
                true => param(GroupParam::Scale, group),
                false => L::scales(block, step)[first / L::GROUP][lane],
            };
            let minimum = L::HAS_MINIMUMS.then(|| param(GroupParam::Minimum, group));
            for (i, out) in out.iter_mut().enumerate() {
                let i = first + i;
                let quant = i32::from(quants[i / 4][4 * lane + i % 4]) - L::OFFSET;
                *out = scale * quant as f32;
                if let Some(minimum) = minimum {
                    *out -= minimum;
                }
            }
        }
    }
}

/// The kernels of a layout.
fn kernels<L: PackedLayout>(isa: Isa) -> Option<PanelKernels> {
    let kernels = match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => {
            PanelKernels { packed: gemm::avx2::gemm::<L>, unpacked: None }
        }
        #[cfg(target_arch = "x86_64")]
        Level::Vnni | Level::Bf16 => PanelKernels {
            packed: gemm::avx512::gemm::<gemm::avx512::Packed<L>>,
            unpacked: if L::UNPACK_FOR_BATCHES {
                Some((unpack::<L>, gemm::avx512::gemm::<Unpacked<L>>))
            } else {
                None
            },
        },
        Level::Scalar => PanelKernels { packed: gemm::scalar::gemm::<L>, unpacked: None },
        #[cfg(target_arch = "aarch64")]
        Level::Dotprod => PanelKernels { packed: gemm::neon::gemm::<L>, unpacked: None },
        // Without dot products of bytes only the kernels that decode to `f32` are vectorized.
        #[cfg(target_arch = "aarch64")]
        Level::Neon => return None,
    };
    Some(kernels)
}
