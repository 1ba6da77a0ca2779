//! Attention of one query row over the pages of its sequence, a page at a time from the oldest,
//! with a running softmax: the order depends on positions alone.

use std::ops::Range;

use muse_core::contract::{Mask, PAGE_TOKENS, PageTable, Place};

use crate::kernels::Kernels;
use crate::kernels::softmax::Running;
use crate::kv::Kv;

/// Query heads that share a pass over K and V.
const HEADS: usize = 16;

/// Positions a query at `t` of `place` sees.
pub(crate) fn visible(mask: Mask, place: &Place<'_>, t: u32) -> Range<u32> {
    match mask {
        Mask::Causal { window: None } => 0..t + 1,
        Mask::Causal { window: Some(window) } => {
            assert!(window > 0, "a window of 0 hides the query from itself");
            (t + 1).saturating_sub(window)..t + 1
        }
        Mask::Block { reach } => {
            let end = place.start + place.rows as u32;
            t.saturating_sub(reach)..end.min(t.saturating_add(reach).saturating_add(1))
        }
    }
}

/// Attends with the query heads `q` `[heads, head_dim]` of one K/V head into `out`, same shape.
pub(crate) fn attend(
    kernels: &Kernels,
    q: &[f32],
    kv: &Kv,
    kv_head: usize,
    pages: &PageTable<'_>,
    seen: Range<u32>,
    scale: f32,
    out: &mut [f32],
) {
    let shape = kv.shape();
    let (dim, page) = (shape.head_dim, PAGE_TOKENS as u32);
    let (dot, mix) = (kernels.linear(kv.layout()), kernels.mix(kv.layout()));
    for (q, out) in q.chunks(HEADS * dim).zip(out.chunks_mut(HEADS * dim)) {
        let heads = q.len() / dim;
        let mut scores = [0.0; HEADS * PAGE_TOKENS];
        let (mut running, mut keep) = ([Running::START; HEADS], [0.0; HEADS]);
        out.fill(0.0);
        for index in seen.start / page..=(seen.end - 1) / page {
            let first = seen.start.max(index * page);
            let end = seen.end.min((index + 1) * page);
            let (number, row) = pages.slot(shape.group, first);
            let n = (end - first) as usize;
            let (k, v) = kv.rows(number, kv_head, row..row + n);
            let scores = &mut scores[..heads * n];
            dot(q, k, dim, scores);
            for (head, scores) in scores.chunks_exact_mut(n).enumerate() {
                keep[head] = (kernels.soften)(scores, scale, &mut running[head]);
            }
            mix(scores, v, n, &keep[..heads], out);
        }
        for (out, running) in out.chunks_exact_mut(dim).zip(running) {
            out.iter_mut().for_each(|x| *x /= running.total);
        }
    }
}
