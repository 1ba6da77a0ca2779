//! BF16: vectors of two neighbours of 16 rows, multiplied with activations rounded likewise where
//! the CPU has products of them; elsewhere the file's bytes are decoded in `f32`.

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(test)]
mod scalar;

use muse_core::quant::Format;

use super::{Activations, Kernels, Kind, PANEL};
use crate::kernels::Isa;

/// Bytes of two neighbours of 16 rows.
const PAIR: usize = 4 * PANEL;

pub(super) const KIND: Kind = Kind {
    format: Format::Bf16,
    activations: Activations::Bf16,
    panel_bytes: |k| k.div_ceil(2) * PAIR,
    pack_row,
    decode_row,
    kernels,
};

fn pack_row(row: &[u8], lane: usize, panel: &mut [u8]) {
    for (pair, vector) in row.chunks(4).zip(panel.chunks_exact_mut(PAIR)) {
        vector[4 * lane..][..pair.len()].copy_from_slice(pair);
    }
}

fn decode_row(panel: &[u8], lane: usize, out: &mut [f32]) {
    for (values, vector) in out.chunks_mut(2).zip(panel.chunks_exact(PAIR)) {
        let pair = &vector[4 * lane..][..2 * values.len()];
        for (value, raw) in values.iter_mut().zip(pair.as_chunks::<2>().0) {
            *value = half::bf16::from_le_bytes(*raw).to_f32();
        }
    }
}

fn kernels(isa: Isa) -> Option<Kernels> {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        crate::kernels::Level::Bf16 => Some(Kernels { packed: avx512::rows, expand: None }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rows;
    use super::*;

    /// The instruction rounds in its own way, takes subnormal numbers for zero, and is otherwise
    /// the definition; every batch has the same bits.
    #[test]
    fn vectors_agree_with_the_definition() {
        let Some(kernels) = kernels(Isa::best()) else {
            return; // `MUSE_EXPECT_ISA` fails the run where this should have been here.
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
                .flat_map(|i| (0..PANEL).flat_map(move |lane| pair(5 + lane * 31, i).to_le_bytes()))
                .collect();
            let run = |kernel: Rows, together: usize| {
                let mut out = vec![[0.0; PANEL]; rows];
                for (tile, out) in out.chunks_exact_mut(together).enumerate() {
                    let words = 0..width * together;
                    let word = |at| pair((tile * together + at % together) * k, at / together);
                    let x: Vec<i32> = words.map(|at| word(at) as i32).collect();
                    kernel(&panel, k, &x, &[], out);
                }
                out
            };
            let (want, alone) = (run(scalar::rows, 1), run(kernels.packed, 1));
            for (got, want) in alone.iter().flatten().zip(want.iter().flatten()) {
                assert!((got - want).abs() <= 1e-6 * k as f32, "k {k}: {got} {want}");
            }
            assert!(run(scalar::rows, 8) == want, "the definition, in tiles of 8");
            for together in [2, 4, 8] {
                assert!(run(kernels.packed, together) == alone, "{together} rows, k {k}");
            }
        }
    }
}
