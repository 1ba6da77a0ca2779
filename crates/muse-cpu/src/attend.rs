//! Attention over the pages of sequences, a page at a time from the oldest, with a running
//! softmax: the order of a row's sums depends on positions alone. Rows of a place take turns at a
//! page while it is in the cache.

use std::ops::Range;

use muse_core::contract::{Attention, PAGE_TOKENS, Place};

use crate::kernels::Kernels;
use crate::kernels::softmax::Running;
use crate::kv::Kv;
use crate::pool::Pool;
use crate::split::Matrix;

/// Query heads that share a pass over K and V.
const HEADS: usize = 16;
/// The most rows of a task.
const BLOCK: usize = 8;
/// Tasks a thread should find.
const TASKS: usize = 4;

/// A call: `q` `[rows, heads · head_dim]` of all places.
pub(crate) struct Attend<'a> {
    pub(crate) kernels: &'a Kernels,
    pub(crate) kv: &'a Kv,
    pub(crate) attention: &'a Attention,
    pub(crate) places: &'a [Place<'a>],
    pub(crate) q: &'a [f32],
}

/// Up to [`BLOCK`] rows of a place.
struct Block<'a> {
    place: &'a Place<'a>,
    /// Position of the first.
    position: u32,
    /// Number of the first among the rows of all places.
    row: usize,
    rows: usize,
}

impl Attend<'_> {
    /// Attends into `out`, of the shape of `q`, on the threads of a pool if there is one.
    pub(crate) fn run(&self, pool: Option<&Pool>, out: &mut [f32]) {
        let (kv_heads, width) = (self.kv.shape().kv_heads, self.width());
        let tasks = pool.map_or(1, |pool| TASKS * pool.threads());
        let most = (self.q.len() / width * kv_heads / tasks).clamp(1, BLOCK);
        let blocks: usize = self.places.iter().map(|place| place.rows.div_ceil(most)).sum();
        let out = Matrix::new(out, width);
        let task = |index: usize| {
            self.task(&self.block(index / kv_heads, most), index % kv_heads, &out);
        };
        match pool {
            Some(pool) => pool.run(blocks * kv_heads, &task),
            None => (0..blocks * kv_heads).for_each(task),
        }
    }

    fn width(&self) -> usize {
        self.attention.heads * self.attention.head_dim
    }

    fn block(&self, mut index: usize, most: usize) -> Block<'_> {
        let mut row = 0;
        for place in self.places {
            let blocks = place.rows.div_ceil(most);
            if index < blocks {
                let first = index * most;
                let position = place.start + first as u32;
                return Block {
                    place,
                    position,
                    row: row + first,
                    rows: most.min(place.rows - first),
                };
            }
            index -= blocks;
            row += place.rows;
        }
        unreachable!("a block of these places")
    }

    /// The rows of a block with the query heads of a K/V head.
    fn task(&self, block: &Block<'_>, kv_head: usize, out: &Matrix<'_, f32>) {
        let Attention { heads, head_dim, mask, .. } = *self.attention;
        let group = heads / self.kv.shape().kv_heads;
        let page = PAGE_TOKENS as u32;
        let seen = |r: usize| mask.visible(block.place, block.position + r as u32);
        for first in (0..group).step_by(HEADS) {
            let (col, heads) = ((kv_head * group + first) * head_dim, HEADS.min(group - first));
            let mut running = [[Running::START; HEADS]; BLOCK];
            let q = |r: usize| &self.q[(block.row + r) * self.width() + col..][..heads * head_dim];
            // SAFETY: a task has a block of rows and a K/V head of its own, which are these rows and
            // columns, and each use below ends before the next begins.
            let out = |r: usize| unsafe { out.part(block.row + r, col, heads * head_dim) };
            (0..block.rows).for_each(|r| out(r).fill(0.0));
            // Later rows begin and end to see no earlier than others.
            let all = seen(0).start..seen(block.rows - 1).end;
            for index in all.start / page..=(all.end - 1) / page {
                for (r, running) in running[..block.rows].iter_mut().enumerate() {
                    let seen = seen(r);
                    let keys = seen.start.max(index * page)..seen.end.min((index + 1) * page);
                    if !keys.is_empty() {
                        self.page(block.place, kv_head, keys, q(r), &mut running[..heads], out(r));
                    }
                }
            }
            for (r, running) in running[..block.rows].iter().enumerate() {
                for (out, running) in out(r).chunks_exact_mut(head_dim).zip(running) {
                    out.iter_mut().for_each(|x| *x /= running.total);
                }
            }
        }
    }

    /// Takes positions `keys` of a page into the sums of a row; `q` and `out` `[heads, head_dim]`.
    fn page(
        &self,
        place: &Place<'_>,
        kv_head: usize,
        keys: Range<u32>,
        q: &[f32],
        running: &mut [Running],
        out: &mut [f32],
    ) {
        let (kernels, kv, dim) = (self.kernels, self.kv, self.attention.head_dim);
        let (number, first) = place.pages.slot(kv.shape().group, keys.start);
        let (heads, rows, scale) = (running.len(), first..first + keys.len(), self.attention.scale);
        let mut scores = [0.0; HEADS * PAGE_TOKENS];
        if let Some(pairs) = kernels.pairs.filter(|_| kv.in_pairs()) {
            let (k, v) = kv.head(number, kv_head);
            let scores = &mut scores[..heads * PAGE_TOKENS];
            (pairs.scores)(q, k, dim, v, scores);
            let next = self.next_keys(place, keys.end, kv_head).unwrap_or(k);
            return (pairs.values)(scores, v, rows, scale, running, next, out);
        }
        let (k, v) = kv.rows(number, kv_head, rows);
        let scores = &mut scores[..heads * keys.len()];
        kernels.linear(kv.layout())(q, k, dim, scores);
        let mut keep = [0.0; HEADS];
        let of_heads = scores.chunks_exact_mut(keys.len()).zip(running);
        for ((scores, running), keep) in of_heads.zip(&mut keep) {
            *keep = (kernels.soften)(scores, scale, running);
        }
        kernels.mix(kv.layout())(scores, v, keys.len(), &keep[..heads], out);
    }

    /// The keys of the page that begins at `position`, if it is one of the place.
    fn next_keys(&self, place: &Place<'_>, position: u32, kv_head: usize) -> Option<&[u8]> {
        let (pages, base) = place.pages.group(self.kv.shape().group);
        let number = pages.get((position - base) as usize / PAGE_TOKENS)?;
        Some(self.kv.head(*number, kv_head).0)
    }
}
