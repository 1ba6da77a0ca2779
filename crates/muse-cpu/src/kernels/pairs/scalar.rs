//! The definition: one value after the other.

use std::ops::Range;

use muse_core::contract::KV_BLOCK_SIZE;

use super::{key_at, value_at};
use crate::kernels::softmax::Running;

pub(super) fn scores(q: &[f32], k: &[u8], dim: usize, _next: &[u8], scores: &mut [f32]) {
    for (q, scores) in q.chunks_exact(dim).zip(scores.chunks_exact_mut(KV_BLOCK_SIZE)) {
        for (row, score) in scores.iter_mut().enumerate() {
            *score = (0..dim).map(|col| round(q[col]) * read(k, key_at(row, col, dim))).sum();
        }
    }
}

pub(super) fn values(
    scores: &[f32],
    v: &[u8],
    seen: Range<usize>,
    scale: f32,
    running: &mut [Running],
    _next: &[u8],
    out: &mut [f32],
) {
    let dim = out.len() / running.len();
    let rows = scores.chunks_exact(KV_BLOCK_SIZE).zip(running).zip(out.chunks_exact_mut(dim));
    for ((scores, running), out) in rows {
        let scaled = |row: usize| scores[row] * scale;
        let largest = seen.clone().map(scaled).fold(running.largest, f32::max);
        let keep = (running.largest - largest).exp();
        let p = |row: usize| (scaled(row) - largest).exp();
        let total = running.total * keep + seen.clone().map(p).sum::<f32>();
        *running = Running { largest, total };
        for (col, out) in out.iter_mut().enumerate() {
            let terms = seen.clone().map(|row| round(p(row)) * read(v, value_at(row, col, dim)));
            *out = *out * keep + terms.sum::<f32>();
        }
    }
}

fn round(x: f32) -> f32 {
    half::bf16::from_f32(x).to_f32()
}

fn read(bytes: &[u8], at: usize) -> f32 {
    half::bf16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}
