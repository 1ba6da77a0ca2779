//! Dot products of a few activation rows with weight rows, decoded as they are read.

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

/// `out[r, c] = x[r] · w[c]` with `x` `[rows, k]`, `w` rows of `k` stored values, `out`
/// `[rows, cols]`. The sum over `k` has one fixed order, whatever the number of rows and columns.
pub type Linear = fn(x: &[f32], w: &[u8], k: usize, out: &mut [f32]);

per_layout!(Linear, linear);

#[cfg(test)]
mod tests {
    use muse_core::quant::q8_0;

    use super::*;
    use crate::kernels::stored;
    use crate::layout::Layout;

    /// Every length of an end, with every mix of row and column tiles.
    #[test]
    fn variants_agree_with_the_definition() {
        for layout in Layout::ALL {
            let block = layout.format().block_values();
            for k in (1..=100).chain([1000, 1024]).map(|k| k * block) {
                let (rows, cols) = (1 + k % 9, 1 + k % 19);
                let (x, _) = stored(Layout::F32, rows * k, 1);
                let (w, bytes) = stored(layout, cols * k, 2);
                let sizes: Vec<f32> = x
                    .chunks_exact(k)
                    .flat_map(|x| {
                        w.chunks_exact(k).map(|w| x.iter().zip(w).map(|(x, w)| (x * w).abs()).sum())
                    })
                    .collect();
                let run = |kernel: Linear| {
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

    /// A row that ends inside a block would be read beyond its bytes.
    #[test]
    fn rows_are_whole_blocks() {
        let (x, bytes, k) = ([1.0; 40], [0; q8_0::BYTES], 40);
        for (name, kernel) in variants(Layout::Q8_0) {
            let refused = std::panic::catch_unwind(|| kernel(&x, &bytes, k, &mut [0.0]));
            assert!(refused.is_err(), "{name}");
        }
    }

    /// Decoding is exact, so a weight's layout never changes a bit beyond its own rounding.
    #[test]
    fn layouts_give_the_bits_of_their_decoded_values() {
        let (k, rows, cols) = (96, 3, 10);
        let (x, _) = stored(Layout::F32, rows * k, 1);
        for layout in Layout::ALL {
            let (w, bytes) = stored(layout, cols * k, 2);
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
