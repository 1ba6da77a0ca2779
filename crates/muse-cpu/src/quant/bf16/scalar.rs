//! The definition of the BF16 gemm: one sum of even pairs and one of odd pairs, added at the end.
//! In a pair the second product is added first.

use crate::quant::panel::{PANEL_ROWS, VECTOR_BYTES};

/// See [`crate::quant::gemm::PanelGemm`].
pub(super) fn gemm(panel: &[u8], _: usize, x: &[i32], _next: &[u8], out: &mut [[f32; PANEL_ROWS]]) {
    let rows = out.len();
    for (r, out) in out.iter_mut().enumerate() {
        let mut sums = [[0.0_f32; PANEL_ROWS]; 2];
        let words = x[r..].iter().step_by(rows);
        for (i, (x, vector)) in words.zip(panel.chunks_exact(VECTOR_BYTES)).enumerate() {
            for (sum, w) in sums[i % 2].iter_mut().zip(vector.as_chunks::<4>().0) {
                let (x, w) = (*x as u32, u32::from_le_bytes(*w));
                let high = |word: u32| f32::from_bits(word & 0xffff_0000);
                *sum = high(x).mul_add(high(w), *sum);
                *sum = high(x << 16).mul_add(high(w << 16), *sum);
            }
        }
        for (lane, out) in out.iter_mut().enumerate() {
            *out += sums[0][lane] + sums[1][lane];
        }
    }
}
