//! Weighted sums of stored V rows: the second half of attention. Rows are decoded to `f32` as they
//! are read.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod tile;

use super::per_layout::per_layout;

/// `out[r] = out[r] · rescale[r] + Σ_t p[r, t] · v[t]`, with `p` `[rows, n]`, `v` `n` stored rows
/// of the width of `out`, and `rescale` `[rows]`. The sum over `t` runs in order.
pub type WeightedVSum = fn(p: &[f32], v: &[u8], n: usize, rescale: &[f32], out: &mut [f32]);

per_layout!(WeightedVSum, weighted_v_sum);

#[cfg(test)]
mod tests {
    use muse_core::quant::q8_0;

    use super::*;
    use crate::layout::Layout;

    /// A row that ends inside a quant block would be read beyond its end.
    #[test]
    fn rows_of_partial_quant_blocks_are_refused() {
        for (name, kernel) in variants(Layout::Q8_0) {
            let refused = std::panic::catch_unwind(|| {
                kernel(&[1.0], &[0; q8_0::BYTES], 1, &[1.0], &mut [0.0; 40]);
            });
            assert!(refused.is_err(), "{name}");
        }
    }

    #[test]
    fn variants_agree_with_the_definition() {
        for layout in Layout::ALL {
            let block = layout.format().block_values();
            for width in (1..=70).chain([128, 130]).map(|width| width * block) {
                let (rows, n) = (1 + width % 9, 1 + width % 64);
                let (p, _) = Layout::F32.test_values(rows * n, 1);
                let (v, bytes) = layout.test_values(n * width, 2);
                let (before, _) = Layout::F32.test_values(rows * width, 3);
                let (rescale, _) = Layout::F32.test_values(rows, 4);
                let run = |kernel: WeightedVSum| {
                    let mut out = before.clone();
                    kernel(&p, &bytes, n, &rescale, &mut out);
                    out
                };
                let mut variants = variants(layout);
                let want = run(variants.next().expect("the definition").1);
                for (name, kernel) in variants {
                    for (i, (got, want)) in run(kernel).iter().zip(&want).enumerate() {
                        let (row, col) = (i / width, i % width);
                        let terms = (0..n).map(|t| (p[row * n + t] * v[t * width + col]).abs());
                        let size = terms.sum::<f32>() + (before[i] * rescale[row]).abs();
                        let error = (got - want).abs();
                        assert!(error <= 1e-5 * size, "{name} {layout:?} {width}: {got} {want}");
                    }
                }
            }
        }
    }
}
