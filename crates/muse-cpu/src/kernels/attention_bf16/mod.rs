//! Attention over one KV block of BF16 keys and values, for CPUs with BF16 dot products.
//!
//! A KV block of a head holds 64 positions, interleaved in pairs. Keys lie by pairs of columns,
//! `[dim / 2, 64, 2]`: a vector is one pair of columns of 16 keys, so that no sum crosses lanes.
//! Values lie by pairs of positions, `[32, dim, 2]`. Queries and softmax weights are rounded to
//! BF16, sums are `f32`. Other CPUs and other K/V types use [`super::gemm`], [`super::softmax`] and
//! [`super::weighted_v_sum`].

#[cfg(target_arch = "x86_64")]
mod avx512;
mod layout;
#[cfg(test)]
mod scalar;

use std::ops::Range;

pub use layout::LANES;
pub(crate) use layout::{k_offset, v_offset};

use super::isa::Isa;
#[cfg(target_arch = "x86_64")]
use super::isa::Level;
use super::softmax::SoftmaxState;

/// `scores[r, t] = q[r] · k[t]` for all 64 keys of a KV block, with `q` `[rows, dim]` and `scores`
/// `[rows, 64]`. `next` is prefetched meanwhile: the memory that is read next.
pub type QkScores = fn(q: &[f32], k: &[u8], dim: usize, next: &[u8], scores: &mut [f32]);

/// The online softmax of the scores `[rows, 64]` of the `visible` positions, as in
/// [`super::softmax`], each row with a state of its own, and the weighted sum of V with its weights
/// `p`: `out[r] = out[r] · rescale[r] + Σ_t p[r, t] · v[t]`, `out` `[rows, dim]`. Other positions
/// of the KV block have no influence, whatever they hold. `next` is prefetched meanwhile.
pub type SoftmaxVSum = fn(
    scores: &[f32],
    v: &[u8],
    visible: Range<usize>,
    scale: f32,
    states: &mut [SoftmaxState],
    next: &[u8],
    out: &mut [f32],
);

/// The two steps of attention over a KV block.
#[derive(Clone, Copy, Debug)]
pub struct AttentionBf16 {
    /// Scores of queries and keys.
    pub qk_scores: QkScores,
    /// Softmax of the scores and weighted sum of V.
    pub softmax_v_sum: SoftmaxVSum,
}

/// The kernels for an instruction set that has BF16 dot products.
pub fn select(isa: Isa) -> Option<AttentionBf16> {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Bf16 => Some(AttentionBf16 {
            qk_scores: avx512::qk_scores,
            softmax_v_sum: avx512::softmax_v_sum,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use muse_core::contract::KV_BLOCK_SIZE;

    use super::*;

    fn noise(n: usize, seed: usize) -> Vec<f32> {
        let noise = |i: usize| (i + seed).wrapping_mul(2_654_435_761) >> 7 & 0xffff;
        (0..n).map(|i| noise(i) as f32 / 32_768.0 - 1.0).collect()
    }

    fn kv_block(dim: usize, seed: usize, offset: impl Fn(usize, usize) -> usize) -> Vec<u8> {
        let mut bytes = vec![0; KV_BLOCK_SIZE * dim * 2];
        for (i, x) in noise(KV_BLOCK_SIZE * dim, seed).into_iter().enumerate() {
            let at = offset(i / dim, i % dim);
            bytes[at..at + 2].copy_from_slice(&half::bf16::from_f32(x).to_le_bytes());
        }
        bytes
    }

    /// The kernels, if this CPU has BF16 dot products.
    fn kernels(test: &str) -> Option<AttentionBf16> {
        let kernels = select(Isa::best());
        if kernels.is_none() {
            muse_testkit::report_skipped(test, "BF16 dot products");
        }
        kernels
    }

    #[test]
    fn scores_agree_with_the_definition_in_any_batch() {
        let Some(kernels) = kernels("scores_agree_with_the_definition_in_any_batch") else {
            return;
        };
        for dim in [16, 32, 64, 80, 128, 144, 272] {
            let k = kv_block(dim, 1, k_offset);
            for rows in [1, 2, 3, 4, 7, 16] {
                let q = noise(rows * dim, 2);
                let (mut got, mut want) = (vec![f32::NAN; rows * KV_BLOCK_SIZE], vec![]);
                want.resize(got.len(), f32::NAN);
                (kernels.qk_scores)(&q, &k, dim, &[], &mut got);
                scalar::qk_scores(&q, &k, dim, &[], &mut want);
                for (got, want) in got.iter().zip(&want) {
                    assert!((got - want).abs() <= 2e-6 * dim as f32, "{dim} {rows}: {got} {want}");
                }
                for (q, got) in q.chunks_exact(dim).zip(got.chunks_exact(KV_BLOCK_SIZE)) {
                    let mut alone = [f32::NAN; KV_BLOCK_SIZE];
                    (kernels.qk_scores)(q, &k, dim, &[], &mut alone);
                    assert!(alone == *got, "a row alone, {dim} {rows}");
                }
            }
        }
    }

    #[test]
    fn v_sums_agree_with_the_definition_in_any_batch() {
        let Some(kernels) = kernels("v_sums_agree_with_the_definition_in_any_batch") else {
            return;
        };
        for dim in [16, 32, 48, 64, 80, 96, 128] {
            for (rows, visible) in
                [(1, 0..1), (2, 0..64), (3, 1..2), (4, 5..6), (7, 3..40), (16, 1..64), (5, 63..64)]
            {
                let mut v = kv_block(dim, 3, |position, col| v_offset(position, col, dim));
                let mut scores = noise(rows * KV_BLOCK_SIZE, 4);
                // Positions that are not visible hold values that would spoil every product.
                for position in (0..KV_BLOCK_SIZE).filter(|position| !visible.contains(position)) {
                    let scores = scores.iter_mut().skip(position);
                    scores.step_by(KV_BLOCK_SIZE).for_each(|s| *s = f32::NAN);
                    for col in 0..dim {
                        let at = v_offset(position, col, dim);
                        v[at..at + 2].copy_from_slice(&half::bf16::INFINITY.to_le_bytes());
                    }
                }
                let before = noise(rows * dim, 6);
                let start = |r: usize| match r % 3 {
                    0 => SoftmaxState::EMPTY,
                    other => SoftmaxState { max: other as f32 * 9.0 - 15.0, sum: 2.5 },
                };
                let run = |kernel: SoftmaxVSum, rows: Range<usize>| {
                    let mut states: Vec<_> = rows.clone().map(start).collect();
                    let mut out = before[rows.start * dim..rows.end * dim].to_vec();
                    let scores = &scores[rows.start * KV_BLOCK_SIZE..rows.end * KV_BLOCK_SIZE];
                    kernel(scores, &v, visible.clone(), 7.0, &mut states, &[], &mut out);
                    (states.iter().flat_map(|s| [s.max, s.sum]).collect::<Vec<_>>(), out)
                };
                let got = run(kernels.softmax_v_sum, 0..rows);
                let want = run(scalar::softmax_v_sum, 0..rows);
                for (got, want) in got.0.iter().zip(&want.0) {
                    assert!((got - want).abs() <= 1e-5 * want.abs(), "{dim} {rows}: {got} {want}");
                }
                for (i, (got, value)) in got.1.iter().zip(&want.1).enumerate() {
                    // Values are below one, and rounding may differ by a unit of BF16.
                    let tolerance = want.0[i / dim * 2 + 1] / 256.0;
                    let error = (got - value).abs();
                    assert!(error <= tolerance, "{dim} {rows} {visible:?}: {got} {value}");
                }
                for r in 0..rows {
                    let alone = run(kernels.softmax_v_sum, r..r + 1);
                    assert!(alone.0 == got.0[2 * r..][..2], "a row alone, {dim} {rows}");
                    assert!(alone.1 == got.1[r * dim..][..dim], "a row alone, {dim} {rows}");
                }
            }
        }
    }
}
