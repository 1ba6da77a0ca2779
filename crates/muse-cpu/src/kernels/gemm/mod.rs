//! Matrix products of a few activation rows with stored rows: weights, or keys of the KV cache.
//! Stored rows are decoded to `f32` as they are read. With one activation row it is a gemv.

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

/// `out[r, c] = x[r] · w[c]`, with `x` `[rows, k]`, `w` `cols` stored rows of `k` values and `out`
/// `[rows, cols]`. The sum over `k` has one fixed order, whatever the numbers of rows and columns.
pub type Gemm = fn(x: &[f32], w: &[u8], k: usize, out: &mut [f32]);

per_layout!(Gemm, gemm);

#[cfg(test)]
mod tests {
    use muse_core::quant::q8_0;

    use super::*;
    use crate::layout::Layout;

    /// Covers every length of the last partial vector and every combination of row and column
    /// tiles.
    #[test]
    fn variants_agree_with_the_definition() {
        for layout in Layout::ALL {
            let block = layout.format().block_values();
            for k in (1..=100).chain([1000, 1024]).map(|k| k * block) {
                let (rows, cols) = (1 + k % 9, 1 + k % 19);
                let (x, _) = Layout::F32.test_values(rows * k, 1);
                let (w, bytes) = layout.test_values(cols * k, 2);
                let sizes: Vec<f32> = x
                    .chunks_exact(k)
                    .flat_map(|x| {
                        w.chunks_exact(k).map(|w| x.iter().zip(w).map(|(x, w)| (x * w).abs()).sum())
                    })
                    .collect();
                let run = |kernel: Gemm| {
                    let mut out = vec![f32::NAN; rows * cols];
                    kernel(&x, &bytes, k, &mut out);
                    out
                };
                let mut variants = variants(layout);
                let want = run(variants.next().expect("the definition").1);
                for (name, kernel) in variants {
                    for ((got, want), size) in run(kernel).iter().zip(&want).zip(&sizes) {
                        let error = (got - want).abs();
                        assert!(error <= 1e-5 * size, "{name} {layout:?} k {k}: {got} {want}");
                    }
                }
            }
        }
    }

    /// A row that ends inside a quant block would be read beyond its end.
    #[test]
    fn rows_of_partial_quant_blocks_are_refused() {
        let (x, bytes, k) = ([1.0; 40], [0; q8_0::BYTES], 40);
        for (name, kernel) in variants(Layout::Q8_0) {
            let refused = std::panic::catch_unwind(|| kernel(&x, &bytes, k, &mut [0.0]));
            assert!(refused.is_err(), "{name}");
        }
    }

    /// Decoding is exact: products with stored values have the bits of products with the decoded
    /// ones.
    #[test]
    fn products_have_the_bits_of_decoded_values() {
        let (k, rows, cols) = (96, 3, 10);
        let (x, _) = Layout::F32.test_values(rows * k, 1);
        for layout in Layout::ALL {
            let (w, bytes) = layout.test_values(cols * k, 2);
            let plain: Vec<u8> = w.iter().flat_map(|w| w.to_le_bytes()).collect();
            for ((name, kernel), (_, f32_kernel)) in variants(layout).zip(variants(Layout::F32)) {
                let (mut got, mut want) = ([0.0; 30], [0.0; 30]);
                kernel(&x, &bytes, k, &mut got);
                f32_kernel(&x, &plain, k, &mut want);
                assert_eq!(got.map(f32::to_bits), want.map(f32::to_bits), "{name} {layout:?}");
            }
        }
    }
}
