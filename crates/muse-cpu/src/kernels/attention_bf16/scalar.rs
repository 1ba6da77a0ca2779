//! The definition of attention in BF16: one value after the other.

use std::ops::Range;

use muse_core::contract::KV_BLOCK_SIZE;

use super::layout::{k_offset, v_offset};
use crate::kernels::softmax::SoftmaxState;

pub(super) fn qk_scores(q: &[f32], k: &[u8], dim: usize, _next: &[u8], scores: &mut [f32]) {
    for (q, scores) in q.chunks_exact(dim).zip(scores.chunks_exact_mut(KV_BLOCK_SIZE)) {
        for (position, score) in scores.iter_mut().enumerate() {
            *score = (0..dim).map(|col| round(q[col]) * read(k, k_offset(position, col))).sum();
        }
    }
}

pub(super) fn softmax_v_sum(
    scores: &[f32],
    v: &[u8],
    visible: Range<usize>,
    scale: f32,
    states: &mut [SoftmaxState],
    _next: &[u8],
    out: &mut [f32],
) {
    let dim = out.len() / states.len();
    let rows = scores.chunks_exact(KV_BLOCK_SIZE).zip(states).zip(out.chunks_exact_mut(dim));
    for ((scores, state), out) in rows {
        let scaled = |position: usize| scores[position] * scale;
        let max = visible.clone().map(scaled).fold(state.max, f32::max);
        let rescale = (state.max - max).exp();
        let p = |position: usize| (scaled(position) - max).exp();
        let sum = state.sum * rescale + visible.clone().map(p).sum::<f32>();
        *state = SoftmaxState { max, sum };
        for (col, out) in out.iter_mut().enumerate() {
            let term = |position: usize| round(p(position)) * read(v, v_offset(position, col, dim));
            let terms = visible.clone().map(term);
            *out = *out * rescale + terms.sum::<f32>();
        }
    }
}

fn round(x: f32) -> f32 {
    half::bf16::from_f32(x).to_f32()
}

fn read(bytes: &[u8], at: usize) -> f32 {
    half::bf16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}
