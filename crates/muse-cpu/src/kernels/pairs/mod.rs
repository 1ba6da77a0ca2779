//! Attention over a page of BF16 keys and values that lie in pairs, for CPUs with products of them.
//!
//! A page of a head holds 64 positions. Keys lie by pairs of columns, `[dim / 2, 64, 2]`: a vector
//! is one pair of columns of 16 keys, so that scores come out side by side and no sum crosses
//! lanes. Values lie by pairs of positions, `[32, dim, 2]`. Queries and softmaxed scores are
//! rounded to BF16 on the way in; sums are `f32`. Elsewhere rows are decoded in `f32`
//! ([`super::linear`], [`super::mix`]).

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(test)]
mod scalar;

use std::ops::Range;

use muse_core::contract::KV_BLOCK_SIZE;

use crate::kernels::Isa;
use crate::kernels::softmax::Running;

/// Widths of a head that are multiples of this can lie in pairs.
pub const LANES: usize = 16;
/// Bytes of a pair.
const PAIR: usize = 4;

/// `scores[r, t] = q[r] · k[t]` for all 64 keys of a page; `q` `[rows, dim]`, `scores`
/// `[rows, 64]`. `next` is what will be read next: it is asked for meanwhile.
pub type Scores = fn(q: &[f32], k: &[u8], dim: usize, next: &[u8], scores: &mut [f32]);

/// Softens the scores `[rows, 64]` of the positions `seen` of a page as [`super::softmax`] does,
/// each row with its own running maximum and total, and takes the values into
/// `out` `[rows, dim]`: `out[r] = out[r] · keep + Σ_t p[r, t] · v[t]`. What else lies in the page is not
/// looked at.
pub type Values = fn(
    scores: &[f32],
    v: &[u8],
    seen: Range<usize>,
    scale: f32,
    running: &mut [Running],
    next: &[u8],
    out: &mut [f32],
);

/// The two halves of attention.
#[derive(Clone, Copy, Debug)]
pub struct Pairs {
    /// Of queries and keys.
    pub scores: Scores,
    /// Of scores and values.
    pub values: Values,
}

/// The kernels of an instruction set that has products of pairs.
pub fn select(isa: Isa) -> Option<Pairs> {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        crate::kernels::Level::Bf16 => {
            Some(Pairs { scores: avx512::scores, values: avx512::values })
        }
        _ => None,
    }
}

/// Where column `col` of key `row` lies in a page of a head, whatever its width.
pub(crate) fn key_at(row: usize, col: usize, _dim: usize) -> usize {
    (col / 2 * KV_BLOCK_SIZE + row) * PAIR + col % 2 * 2
}

/// Where column `col` of value `row` lies in a page of a head of width `dim`.
pub(crate) fn value_at(row: usize, col: usize, dim: usize) -> usize {
    (row / 2 * dim + col) * PAIR + row % 2 * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(n: usize, seed: usize) -> Vec<f32> {
        let noise = |i: usize| (i + seed).wrapping_mul(2_654_435_761) >> 7 & 0xffff;
        (0..n).map(|i| noise(i) as f32 / 32_768.0 - 1.0).collect()
    }

    fn page(dim: usize, seed: usize, at: impl Fn(usize, usize) -> usize) -> Vec<u8> {
        let mut bytes = vec![0; KV_BLOCK_SIZE * dim * 2];
        for (i, x) in noise(KV_BLOCK_SIZE * dim, seed).into_iter().enumerate() {
            let at = at(i / dim, i % dim);
            bytes[at..at + 2].copy_from_slice(&half::bf16::from_f32(x).to_le_bytes());
        }
        bytes
    }

    fn kernels() -> Option<Pairs> {
        // `MUSE_EXPECT_ISA` fails the run where there should have been some.
        select(Isa::best())
    }

    #[test]
    fn scores_agree_with_the_definition_in_any_company() {
        let Some(kernels) = kernels() else { return };
        for dim in [16, 32, 64, 80, 128, 144, 272] {
            let k = page(dim, 1, |row, col| key_at(row, col, dim));
            for rows in [1, 2, 3, 4, 7, 16] {
                let q = noise(rows * dim, 2);
                let (mut got, mut want) = (vec![f32::NAN; rows * KV_BLOCK_SIZE], vec![]);
                want.resize(got.len(), f32::NAN);
                (kernels.scores)(&q, &k, dim, &[], &mut got);
                scalar::scores(&q, &k, dim, &[], &mut want);
                for (got, want) in got.iter().zip(&want) {
                    assert!((got - want).abs() <= 2e-6 * dim as f32, "{dim} {rows}: {got} {want}");
                }
                for (q, got) in q.chunks_exact(dim).zip(got.chunks_exact(KV_BLOCK_SIZE)) {
                    let mut alone = [f32::NAN; KV_BLOCK_SIZE];
                    (kernels.scores)(q, &k, dim, &[], &mut alone);
                    assert!(alone == *got, "a row alone, {dim} {rows}");
                }
            }
        }
    }

    #[test]
    fn values_agree_with_the_definition_in_any_company() {
        let Some(kernels) = kernels() else { return };
        for dim in [16, 32, 64, 80, 128] {
            for (rows, seen) in
                [(1, 0..1), (2, 0..64), (3, 1..2), (4, 5..6), (7, 3..40), (16, 1..64), (5, 63..64)]
            {
                let mut v = page(dim, 3, |row, col| value_at(row, col, dim));
                let mut scores = noise(rows * KV_BLOCK_SIZE, 4);
                // What lies outside must not even be multiplied.
                for row in (0..KV_BLOCK_SIZE).filter(|row| !seen.contains(row)) {
                    scores.iter_mut().skip(row).step_by(KV_BLOCK_SIZE).for_each(|s| *s = f32::NAN);
                    for col in 0..dim {
                        let at = value_at(row, col, dim);
                        v[at..at + 2].copy_from_slice(&half::bf16::INFINITY.to_le_bytes());
                    }
                }
                let before = noise(rows * dim, 6);
                let start = |r: usize| match r % 3 {
                    0 => Running::START,
                    other => Running { largest: other as f32 * 9.0 - 15.0, total: 2.5 },
                };
                let run = |kernel: Values, rows: Range<usize>| {
                    let mut running: Vec<_> = rows.clone().map(start).collect();
                    let mut out = before[rows.start * dim..rows.end * dim].to_vec();
                    let scores = &scores[rows.start * KV_BLOCK_SIZE..rows.end * KV_BLOCK_SIZE];
                    kernel(scores, &v, seen.clone(), 7.0, &mut running, &[], &mut out);
                    (running.iter().flat_map(|r| [r.largest, r.total]).collect::<Vec<_>>(), out)
                };
                let (got, want) = (run(kernels.values, 0..rows), run(scalar::values, 0..rows));
                for (got, want) in got.0.iter().zip(&want.0) {
                    assert!((got - want).abs() <= 1e-5 * want.abs(), "{dim} {rows}: {got} {want}");
                }
                for (i, (got, value)) in got.1.iter().zip(&want.1).enumerate() {
                    // Values are below one, and a weight may round to its neighbour.
                    let most = want.0[i / dim * 2 + 1] / 256.0;
                    assert!((got - value).abs() <= most, "{dim} {rows} {seen:?}: {got} {value}");
                }
                for r in 0..rows {
                    let alone = run(kernels.values, r..r + 1);
                    assert!(alone.0 == got.0[2 * r..][..2], "a row alone, {dim} {rows}");
                    assert!(alone.1 == got.1[r * dim..][..dim], "a row alone, {dim} {rows}");
                }
            }
        }
    }
}
