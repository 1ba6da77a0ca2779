//! Attention over the KV blocks of sequences, one KV block at a time from the oldest, with an
//! online softmax: the order of the sums of a query depends on positions alone. All queries of a
//! task use a KV block before the next one, while it is in the cache.

use std::ops::Range;

use muse_core::contract::{Attention, KV_BLOCK_SIZE, SeqSlice};

use crate::kernels::Kernels;
use crate::kernels::softmax::SoftmaxState;
use crate::kv::Kv;
use crate::pool::Pool;
use crate::split::Matrix;

/// Query heads that are multiplied with a K/V head together.
const MAX_HEADS: usize = 16;
/// The largest number of queries of a task.
const MAX_TASK_QUERIES: usize = 8;
/// The smallest number of query heads of a task: with fewer, reading K and V for them would not
/// pay.
const MIN_TASK_HEADS: usize = 4;
/// Tasks per thread that a call is split into.
const TASKS_PER_THREAD: usize = 4;

/// A call: `q` `[queries, heads · head_dim]` of all slices.
pub(crate) struct AttentionCall<'a> {
    pub(crate) kernels: &'a Kernels,
    pub(crate) kv: &'a Kv,
    pub(crate) attention: &'a Attention,
    pub(crate) slices: &'a [SeqSlice<'a>],
    pub(crate) q: &'a [f32],
}

/// Up to [`MAX_TASK_QUERIES`] consecutive queries of a slice.
struct Queries<'a> {
    slice: &'a SeqSlice<'a>,
    /// Position of the first query.
    position: u32,
    /// Row of the first query in the batch.
    row: usize,
    len: usize,
}

impl AttentionCall<'_> {
    /// Attends into `out`, of the shape of `q`; on the threads of a pool if there is one.
    pub(crate) fn run(&self, pool: Option<&Pool>, out: &mut [f32]) {
        let (kv_heads, width) = (self.kv.shape().kv_heads, self.width());
        let tasks = pool.map_or(1, |pool| TASKS_PER_THREAD * pool.threads());
        let max = (self.q.len() / width * kv_heads / tasks).clamp(1, MAX_TASK_QUERIES);
        let parts: usize = self.slices.iter().map(|slice| slice.len.div_ceil(max)).sum();
        let group = self.attention.heads / kv_heads;
        let heads = heads_per_task(group, parts * kv_heads, pool.map_or(1, Pool::threads));
        let shares = group.div_ceil(heads);
        let out = Matrix::new(out, width);
        let task = |index: usize| {
            let (part, kv_head) = (index / shares / kv_heads, index / shares % kv_heads);
            let first = index % shares * heads;
            let heads = kv_head * group + first..kv_head * group + group.min(first + heads);
            self.task(&self.queries(part, max), kv_head, heads, &out);
        };
        match pool {
            Some(pool) => pool.run(parts * kv_heads * shares, &task),
            None => (0..parts * kv_heads * shares).for_each(task),
        }
    }

    fn width(&self) -> usize {
        self.attention.heads * self.attention.head_dim
    }

    /// Part `index` of the queries, where slices are split into parts of up to `max`.
    fn queries(&self, mut index: usize, max: usize) -> Queries<'_> {
        let mut row = 0;
        for slice in self.slices {
            let parts = slice.len.div_ceil(max);
            if index < parts {
                let first = index * max;
                let position = slice.start + first as u32;
                let len = max.min(slice.len - first);
                return Queries { slice, position, row: row + first, len };
            }
            index -= parts;
            row += slice.len;
        }
        unreachable!("a part of these slices")
    }

    /// Attends some queries with query heads of one K/V head.
    fn task(
        &self,
        queries: &Queries<'_>,
        kv_head: usize,
        query_heads: Range<usize>,
        out: &Matrix<'_, f32>,
    ) {
        let Attention { head_dim, mask, .. } = *self.attention;
        let block = KV_BLOCK_SIZE as u32;
        let visible = |i: usize| mask.visible(queries.slice, queries.position + i as u32);
        for first in query_heads.clone().step_by(MAX_HEADS) {
            let (col, heads) = (first * head_dim, MAX_HEADS.min(query_heads.end - first));
            let mut states = [[SoftmaxState::EMPTY; MAX_HEADS]; MAX_TASK_QUERIES];
            let q =
                |i: usize| &self.q[(queries.row + i) * self.width() + col..][..heads * head_dim];
            // SAFETY: no other task has these query heads of these queries, which are these columns
            // of these rows, and each use below ends before the next begins.
            let out = |i: usize| unsafe { out.part(queries.row + i, col, heads * head_dim) };
            (0..queries.len).for_each(|i| out(i).fill(0.0));
            // The visible positions of later queries never begin or end earlier.
            let all = visible(0).start..visible(queries.len - 1).end;
            for index in all.start / block..=(all.end - 1) / block {
                for (i, states) in states[..queries.len].iter_mut().enumerate() {
                    let visible = visible(i);
                    let keys =
                        visible.start.max(index * block)..visible.end.min((index + 1) * block);
                    if !keys.is_empty() {
                        let states = &mut states[..heads];
                        self.kv_block(queries.slice, kv_head, keys, q(i), states, out(i));
                    }
                }
            }
            for (i, states) in states[..queries.len].iter().enumerate() {
                for (out, state) in out(i).chunks_exact_mut(head_dim).zip(states) {
                    out.iter_mut().for_each(|x| *x /= state.sum);
                }
            }
        }
    }

    /// Adds the positions `keys` of a KV block to the sums of a query; `q` and `out` are
    /// `[heads, head_dim]`.
    fn kv_block(
        &self,
        slice: &SeqSlice<'_>,
        kv_head: usize,
        keys: Range<u32>,
        q: &[f32],
        states: &mut [SoftmaxState],
        out: &mut [f32],
    ) {
        let (kernels, kv, dim) = (self.kernels, self.kv, self.attention.head_dim);
        let (block, first) = slice.blocks.slot(kv.shape().group, keys.start);
        let (heads, positions, scale) =
            (states.len(), first..first + keys.len(), self.attention.scale);
        let mut scores = [0.0; MAX_HEADS * KV_BLOCK_SIZE];
        if let Some(attention) = kernels.attention_bf16.filter(|_| kv.is_interleaved()) {
            let (k, v) = kv.head(block, kv_head);
            let scores = &mut scores[..heads * KV_BLOCK_SIZE];
            (attention.qk_scores)(q, k, dim, v, scores);
            let next = self.next_keys(slice, keys.end, kv_head).unwrap_or(k);
            return (attention.softmax_v_sum)(scores, v, positions, scale, states, next, out);
        }
        let (k, v) = kv.positions(block, kv_head, positions);
        let scores = &mut scores[..heads * keys.len()];
        kernels.gemm(kv.layout())(q, k, dim, scores);
        let mut rescale = [0.0; MAX_HEADS];
        let scores_of_heads = scores.chunks_exact_mut(keys.len()).zip(states);
        for ((scores, state), rescale) in scores_of_heads.zip(&mut rescale) {
            *rescale = (kernels.online_softmax)(scores, scale, state);
        }
        kernels.weighted_v_sum(kv.layout())(scores, v, keys.len(), &rescale[..heads], out);
    }

    /// The keys of the KV block that begins at `position`, if the slice has it.
    fn next_keys(&self, slice: &SeqSlice<'_>, position: u32, kv_head: usize) -> Option<&[u8]> {
        let (blocks, base) = slice.blocks.group(self.kv.shape().group);
        let block = blocks.get((position - base) as usize / KV_BLOCK_SIZE)?;
        Some(self.kv.head(*block, kv_head).0)
    }
}

/// Query heads of a task, of `group` that share a K/V head: all, unless threads would have no task.
/// Heads are independent, so splitting them changes no bit.
fn heads_per_task(group: usize, tasks: usize, threads: usize) -> usize {
    let mut heads = group;
    while tasks * group.div_ceil(heads) < threads && heads >= 2 * MIN_TASK_HEADS {
        heads = heads.div_ceil(2);
    }
    heads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_split_where_threads_would_be_idle() {
        // 16 query heads on each of 2 K/V heads, for one query and for many.
        for (tasks, threads, heads) in
            [(2, 1, 16), (2, 2, 16), (2, 3, 8), (2, 4, 8), (2, 8, 4), (2, 64, 4), (64, 64, 16)]
        {
            let got = heads_per_task(16, tasks, threads);
            assert_eq!(got, heads, "{tasks} tasks, {threads} threads");
        }
        let small = [(1, 2), (4, 2), (9, 1)].map(|(group, tasks)| heads_per_task(group, tasks, 8));
        assert_eq!(small, [1, 4, 5]);
    }
}
