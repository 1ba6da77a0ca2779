//! Attention over the pages of sequences, a page at a time from the oldest, with a running
//! softmax: the order of a row's sums depends on positions alone. Rows of a place take turns at a
//! page while it is in the cache.

use std::ops::Range;

use muse_core::contract::{Attention, KV_BLOCK_SIZE, SeqSlice};

use crate::kernels::Kernels;
use crate::kernels::softmax::Running;
use crate::kv::Kv;
use crate::pool::Pool;
use crate::split::Matrix;

/// Query heads that share a pass over K and V.
const HEADS: usize = 16;
/// The most rows of a task.
const BLOCK: usize = 8;
/// The fewest that it pays to read K and V for, where threads would be idle otherwise.
const FEW_HEADS: usize = 4;
/// Tasks a thread should find.
const TASKS: usize = 4;

/// A call: `q` `[rows, heads · head_dim]` of all places.
pub(crate) struct Attend<'a> {
    pub(crate) kernels: &'a Kernels,
    pub(crate) kv: &'a Kv,
    pub(crate) attention: &'a Attention,
    pub(crate) slices: &'a [SeqSlice<'a>],
    pub(crate) q: &'a [f32],
}

/// Up to [`BLOCK`] rows of a place.
struct Block<'a> {
    slice: &'a SeqSlice<'a>,
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
        let blocks: usize = self.slices.iter().map(|slice| slice.len.div_ceil(most)).sum();
        let group = self.attention.heads / kv_heads;
        let heads = share(group, blocks * kv_heads, pool.map_or(1, Pool::threads));
        let shares = group.div_ceil(heads);
        let out = Matrix::new(out, width);
        let task = |index: usize| {
            let (block, head) = (index / shares / kv_heads, index / shares % kv_heads);
            let first = index % shares * heads;
            let heads = head * group + first..head * group + group.min(first + heads);
            self.task(&self.block(block, most), head, heads, &out);
        };
        match pool {
            Some(pool) => pool.run(blocks * kv_heads * shares, &task),
            None => (0..blocks * kv_heads * shares).for_each(task),
        }
    }

    fn width(&self) -> usize {
        self.attention.heads * self.attention.head_dim
    }

    fn block(&self, mut index: usize, most: usize) -> Block<'_> {
        let mut row = 0;
        for slice in self.slices {
            let blocks = slice.len.div_ceil(most);
            if index < blocks {
                let first = index * most;
                let position = slice.start + first as u32;
                return Block {
                    slice,
                    position,
                    row: row + first,
                    rows: most.min(slice.len - first),
                };
            }
            index -= blocks;
            row += slice.len;
        }
        unreachable!("a block of these slices")
    }

    /// The rows of a block with query heads of a K/V head.
    fn task(
        &self,
        block: &Block<'_>,
        kv_head: usize,
        query_heads: Range<usize>,
        out: &Matrix<'_, f32>,
    ) {
        let Attention { head_dim, mask, .. } = *self.attention;
        let page = KV_BLOCK_SIZE as u32;
        let seen = |r: usize| mask.visible(block.slice, block.position + r as u32);
        for first in query_heads.clone().step_by(HEADS) {
            let (col, heads) = (first * head_dim, HEADS.min(query_heads.end - first));
            let mut running = [[Running::START; HEADS]; BLOCK];
            let q = |r: usize| &self.q[(block.row + r) * self.width() + col..][..heads * head_dim];
            // SAFETY: a task has a block of rows and query heads of its own, which are these rows and
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
                        self.page(block.slice, kv_head, keys, q(r), &mut running[..heads], out(r));
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
        slice: &SeqSlice<'_>,
        kv_head: usize,
        keys: Range<u32>,
        q: &[f32],
        running: &mut [Running],
        out: &mut [f32],
    ) {
        let (kernels, kv, dim) = (self.kernels, self.kv, self.attention.head_dim);
        let (number, first) = slice.blocks.slot(kv.shape().group, keys.start);
        let (heads, rows, scale) = (running.len(), first..first + keys.len(), self.attention.scale);
        let mut scores = [0.0; HEADS * KV_BLOCK_SIZE];
        if let Some(pairs) = kernels.pairs.filter(|_| kv.in_pairs()) {
            let (k, v) = kv.head(number, kv_head);
            let scores = &mut scores[..heads * KV_BLOCK_SIZE];
            (pairs.scores)(q, k, dim, v, scores);
            let next = self.next_keys(slice, keys.end, kv_head).unwrap_or(k);
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
    fn next_keys(&self, slice: &SeqSlice<'_>, position: u32, kv_head: usize) -> Option<&[u8]> {
        let (pages, base) = slice.blocks.group(self.kv.shape().group);
        let number = pages.get((position - base) as usize / KV_BLOCK_SIZE)?;
        Some(self.kv.head(*number, kv_head).0)
    }
}

/// Query heads of a task, of `group` that share a K/V head: all, unless that leaves threads without a
/// task. Heads do not depend on each other, so their sums are the same in any company.
fn share(group: usize, tasks: usize, threads: usize) -> usize {
    let mut heads = group;
    while tasks * group.div_ceil(heads) < threads && heads >= 2 * FEW_HEADS {
        heads = heads.div_ceil(2);
    }
    heads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_shared_where_threads_would_be_idle() {
        // Of 16 query heads on each of 2 K/V heads, for a lone row and for many.
        for (tasks, threads, heads) in
            [(2, 1, 16), (2, 2, 16), (2, 3, 8), (2, 4, 8), (2, 8, 4), (2, 64, 4), (64, 64, 16)]
        {
            assert_eq!(share(16, tasks, threads), heads, "{tasks} tasks, {threads} threads");
        }
        assert_eq!((share(1, 2, 8), share(4, 2, 8), share(9, 1, 8)), (1, 4, 5));
    }
}
