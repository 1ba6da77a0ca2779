//! Attention without a mask inside ranges of positions, as the vision tower has it: all queries of
//! a part attend to the same keys. One KV block at a time with an online softmax, so that the order
//! of the sums of a query depends on its range alone.

use std::ops::Range;

use muse_core::contract::{KV_BLOCK_SIZE, RangeQueries};

use crate::kernels::Kernels;
use crate::kernels::softmax::SoftmaxState;
use crate::kv::Kv;
use crate::pool::Pool;
use crate::split::Matrix;

/// The largest number of queries of a task, which share a head: their rows of q, of scores and of
/// the output stay in the first-level cache while K and V stream by.
const MAX_TASK_QUERIES: usize = 32;

/// A call: `q` `[queries, heads · head_dim]` of all parts.
pub(crate) struct RangeAttention<'a> {
    pub(crate) kernels: &'a Kernels,
    pub(crate) kv: &'a Kv,
    pub(crate) parts: &'a [RangeQueries],
    pub(crate) scale: f32,
    pub(crate) q: &'a [f32],
}

impl RangeAttention<'_> {
    /// Attends into `out`, of the shape of `q`; on the threads of a pool if there is one.
    pub(crate) fn run(&self, pool: Option<&Pool>, out: &mut [f32]) {
        let heads = self.kv.shape().kv_heads;
        let positions = self.kv.shape().blocks * KV_BLOCK_SIZE;
        for part in self.parts {
            let Range { start, end } = part.keys;
            assert!(
                start < end && end as usize <= positions,
                "keys {start}..{end} of a KV store of {positions} positions"
            );
        }
        let tiles: usize = self.parts.iter().map(|part| part.rows.div_ceil(MAX_TASK_QUERIES)).sum();
        let out = Matrix::new(out, self.width());
        // Tasks of a head follow each other, so that its K and V stay in the cache.
        let task = |index: usize| {
            let (head, tile) = (index / tiles, index % tiles);
            let (keys, rows) = self.tile(tile);
            self.task(head, keys, rows, &out);
        };
        match pool {
            Some(pool) => pool.run(heads * tiles, &task),
            None => (0..heads * tiles).for_each(task),
        }
    }

    fn width(&self) -> usize {
        self.kv.shape().kv_heads * self.kv.shape().head_dim
    }

    /// The keys and the rows of tile `index`, where parts are split into tiles.
    fn tile(&self, mut index: usize) -> (Range<u32>, Range<usize>) {
        let mut row = 0;
        for part in self.parts {
            let tiles = part.rows.div_ceil(MAX_TASK_QUERIES);
            if index < tiles {
                let first = row + index * MAX_TASK_QUERIES;
                return (part.keys.clone(), first..(first + MAX_TASK_QUERIES).min(row + part.rows));
            }
            index -= tiles;
            row += part.rows;
        }
        unreachable!("a tile of these parts")
    }

    /// Attends the queries of some rows with one head.
    fn task(&self, head: usize, keys: Range<u32>, rows: Range<usize>, out: &Matrix<'_, f32>) {
        let (dim, width, n) = (self.kv.shape().head_dim, self.width(), rows.len());
        let mut buffer = Buffer::default();
        let (q, sums) = buffer.tiles(n * dim);
        for (q, row) in q.chunks_exact_mut(dim).zip(rows.clone()) {
            q.copy_from_slice(&self.q[row * width + head * dim..][..dim]);
        }
        let mut states = [SoftmaxState::EMPTY; MAX_TASK_QUERIES];
        let block = KV_BLOCK_SIZE as u32;
        for index in keys.start / block..keys.end.div_ceil(block) {
            let first = keys.start.max(index * block) - index * block;
            let end = keys.end.min((index + 1) * block) - index * block;
            self.kv_block(index, head, first as usize..end as usize, q, &mut states[..n], sums);
        }
        for ((sums, state), row) in sums.chunks_exact(dim).zip(&states).zip(rows) {
            // SAFETY: no other task has this head of this row, and the part ends with this
            // iteration.
            let out = unsafe { out.part(row, head * dim, dim) };
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum / state.sum);
        }
    }

    /// Adds some positions of a KV block to the sums of all queries of a task; `q` and `out` are
    /// `[queries, head_dim]`.
    fn kv_block(
        &self,
        block: u32,
        head: usize,
        positions: Range<usize>,
        q: &[f32],
        states: &mut [SoftmaxState],
        out: &mut [f32],
    ) {
        let (kernels, kv, scale, dim) =
            (self.kernels, self.kv, self.scale, self.kv.shape().head_dim);
        let mut scores = [0.0; MAX_TASK_QUERIES * KV_BLOCK_SIZE];
        if let Some(attention) = kernels.attention_bf16.filter(|_| kv.is_interleaved()) {
            let (k, v) = kv.head(block, head);
            let scores = &mut scores[..states.len() * KV_BLOCK_SIZE];
            (attention.qk_scores)(q, k, dim, v, scores);
            // Behind the last KV block the same keys are read again, by the next task.
            let next = (block + 1).min(kv.shape().blocks as u32 - 1);
            let next = kv.head(next, head).0;
            return (attention.softmax_v_sum)(scores, v, positions, scale, states, next, out);
        }
        let len = positions.len();
        let (k, v) = kv.positions(block, head, positions);
        let scores = &mut scores[..states.len() * len];
        kernels.gemm(kv.layout())(q, k, dim, scores);
        let mut rescale = [0.0; MAX_TASK_QUERIES];
        for ((scores, state), rescale) in
            scores.chunks_exact_mut(len).zip(&mut *states).zip(&mut rescale)
        {
            *rescale = (kernels.online_softmax)(scores, scale, state);
        }
        kernels.weighted_v_sum(kv.layout())(scores, v, len, &rescale[..states.len()], out);
    }
}

/// Widest head whose tiles of q and of sums are kept on the stack.
const MAX_STACK_DIM: usize = 128;

/// The tiles of q and of sums of a task.
struct Buffer {
    stack: [f32; 2 * MAX_TASK_QUERIES * MAX_STACK_DIM],
    heap: Vec<f32>,
}

impl Default for Buffer {
    fn default() -> Self {
        Self { stack: [0.0; 2 * MAX_TASK_QUERIES * MAX_STACK_DIM], heap: Vec::new() }
    }
}

impl Buffer {
    /// Two zeroed tiles of `values` values each.
    fn tiles(&mut self, values: usize) -> (&mut [f32], &mut [f32]) {
        if 2 * values <= self.stack.len() {
            return self.stack[..2 * values].split_at_mut(values);
        }
        self.heap.resize(2 * values, 0.0);
        self.heap.split_at_mut(values)
    }
}
