//! Packed BF16: vectors of two consecutive values of each of 16 rows, multiplied with activations
//! in BF16, for CPUs with BF16 dot products. On other CPUs the bytes of the file are decoded to
//! `f32`.

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(test)]
mod scalar;

use muse_core::quant::Format;

use super::activations::ActivationFormat;
use super::packed::{PackedFormat, PanelKernels};
use super::panel::VECTOR_BYTES;
use crate::kernels::Isa;
#[cfg(target_arch = "x86_64")]
use crate::kernels::Level;

/// The packed format.
pub(super) const PACKED_FORMAT: PackedFormat = PackedFormat {
    format: Format::Bf16,
    activations: ActivationFormat::Bf16,
    panel_bytes: |k| k.div_ceil(2) * VECTOR_BYTES,
    pack_row,
    decode_row,
    kernels,
};

fn pack_row(row: &[u8], lane: usize, panel: &mut [u8]) {
    for (pair, vector) in row.chunks(4).zip(panel.chunks_exact_mut(VECTOR_BYTES)) {
        vector[4 * lane..][..pair.len()].copy_from_slice(pair);
    }
}

fn decode_row(panel: &[u8], lane: usize, out: &mut [f32]) {
    for (values, vector) in out.chunks_mut(2).zip(panel.chunks_exact(VECTOR_BYTES)) {
        let pair = &vector[4 * lane..][..2 * values.len()];
        for (value, raw) in values.iter_mut().zip(pair.as_chunks::<2>().0) {
            *value = half::bf16::from_le_bytes(*raw).to_f32();
        }
    }
}

fn kernels(isa: Isa) -> Option<PanelKernels> {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Bf16 => Some(PanelKernels { packed: avx512::gemm, unpacked: None }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::gemm::PanelGemm;
    use crate::quant::panel::PANEL_ROWS;

    /// The instruction rounds differently and treats subnormal numbers as zero, so it agrees with
    /// the definition only closely. Every batch has the same bits.
    #[test]
    fn bf16_gemm_agrees_with_the_definition_in_any_batch() {
        let Some(kernels) = kernels(Isa::best()) else {
            let test = "bf16_gemm_agrees_with_the_definition_in_any_batch";
            return muse_testkit::report_skipped(test, "BF16 dot products");
        };
        for k in [1_usize, 2, 3, 31, 64, 65, 1000] {
            let rows = 16;
            let width = k.div_ceil(2);
            let half = |i: usize| ((i * 7919 % 997) as f32 / 498.0 - 1.0).to_bits() >> 16;
            let pair = |row: usize, i: usize| {
                let second = if 2 * i + 1 < k { half(row + 2 * i + 1) } else { 0 };
                half(row + 2 * i) | second << 16
            };
            let panel: Vec<u8> = (0..width)
                .flat_map(|i| {
                    (0..PANEL_ROWS).flat_map(move |lane| pair(5 + lane * 31, i).to_le_bytes())
                })
                .collect();
            let run = |kernel: PanelGemm, batch: usize| {
                let mut out = vec![[0.0; PANEL_ROWS]; rows];
                for (tile, out) in out.chunks_exact_mut(batch).enumerate() {
                    let words = 0..width * batch;
                    let word = |at| pair((tile * batch + at % batch) * k, at / batch);
                    let x: Vec<i32> = words.map(|at| word(at) as i32).collect();
                    kernel(&panel, k, &x, &[], out);
                }
                out
            };
            let (want, alone) = (run(scalar::gemm, 1), run(kernels.packed, 1));
            for (got, want) in alone.iter().flatten().zip(want.iter().flatten()) {
                assert!((got - want).abs() <= 1e-6 * k as f32, "k {k}: {got} {want}");
            }
            assert!(run(scalar::gemm, 8) == want, "the definition, in tiles of 8");
            for batch in [2, 4, 8] {
                assert!(run(kernels.packed, batch) == alone, "{batch} rows, k {k}");
            }
        }
    }
}
