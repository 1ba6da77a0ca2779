//! Attention over KV blocks.

use std::ops::Range;

use muse_core::Result;
use muse_core::contract::{
    Attention, Backend, KV_BLOCK_SIZE, KvGroup, KvShape, KvType, Mask, SeqSlice,
};
use muse_core::quant::tile::SIDE;
use muse_tt::{KvCache, Segments, op};

use crate::lane::Requirement;

use super::sequence::{Sequence, slices};
use super::{
    CANARY, Case, CoreSet, CostKind, ExpectedCost, Harness, Outcome, TILE_PRODUCT, case, values,
};

/// The value of positions behind the end of a sequence in its KV blocks, left by ended sequences.
const STALE: f32 = 3e4;

/// Query heads, K/V heads, width of a head.
type Heads = (usize, usize, usize);
/// The smallest possible, for a slow simulator, and with query heads that share a K/V head.
const MINIMAL: Heads = (1, 1, 32);
const GROUPED: Heads = (2, 1, 32);
/// Those of the checkpoints `tiny` and `nano`, and of the published model.
const TINY: Heads = (8, 2, 32);
const NANO: Heads = (4, 2, 64);
const REAL: Heads = (32, 2, 128);
/// Those of the drafter of the published model.
const DRAFTER: Heads = (32, 8, 128);

/// `(first position, tokens)` of each sequence.
type Runs = &'static [(u32, usize)];
const SHORT: Runs = &[(62, 4)];
const SHARED: Runs = &[(62, 3), (3, 1)];
const VERIFY: Runs = &[(70, 16)];
const PACKED: Runs = &[(150, 9), (63, 2), (0, 3), (200, 1)];
const CHUNK: Runs = &[(0, 70)];
const SECOND: Runs = &[(64, 96)];
const DEEP: Runs = &[(440, 32)];
const LONG: Runs = &[(4090, 10)];
const DRAFT: Runs = &[(2040, 16)];

/// How many cores read each K/V head, for one core, a row and the grid: idle cores take some of its
/// query heads.
type Readers = [u64; 3];

/// Verify batches, alone and with other sequences, prefill chunks, and draft blocks, with every
/// mask.
pub(super) fn cases(core_set: CoreSet) -> impl Iterator<Item = Case> {
    let (all, window) = (Mask::Causal { window: None }, Mask::Causal { window: Some(100) });
    let (near, narrow) = (Mask::Causal { window: Some(32) }, Mask::Causal { window: Some(30) });
    let draft = |reach| Mask::DraftBlock { reach };
    let named: [(&str, Runs, Heads, Mask, Readers); 18] = [
        ("minimal", SHORT, MINIMAL, narrow, [1, 1, 1]),
        ("grouped", SHARED, GROUPED, all, [1, 2, 2]),
        ("verify", VERIFY, NANO, all, [1, 2, 2]),
        ("verify_window", VERIFY, TINY, near, [1, 2, 4]),
        ("packed", PACKED, NANO, all, [1, 1, 2]),
        ("packed_window", PACKED, TINY, window, [1, 1, 4]),
        ("chunk", CHUNK, TINY, all, [1, 1, 4]),
        ("chunk_window", SECOND, NANO, window, [1, 1, 2]),
        ("draft_block", VERIFY, NANO, draft(40), [1, 2, 2]),
        ("draft_block_packed", PACKED, TINY, draft(100), [1, 1, 4]),
        ("long", LONG, TINY, all, [1, 2, 4]),
        ("real_verify", VERIFY, REAL, all, [1, 2, 16]),
        ("real_deep", DEEP, REAL, all, [1, 2, 16]),
        ("real_deep_window", DEEP, REAL, window, [1, 2, 16]),
        ("real_packed", PACKED, REAL, window, [1, 1, 16]),
        ("real_chunk", SECOND, REAL, all, [1, 1, 16]),
        ("real_draft_block", PACKED, REAL, draft(100), [1, 1, 16]),
        ("real_draft", DRAFT, DRAFTER, draft(2047), [1, 1, 4]),
    ];
    let whole = named.into_iter().map(move |(name, runs, heads, mask, readers)| {
        attend_case(name, runs, heads, core_set, false, move |harness| {
            harness.attend(&AttentionCase::new(runs, heads, mask, readers), core_set)
        })
    });
    let packed = move || AttentionCase::new(PACKED, TINY, window, [1, 1, 4]);
    let negative = attend_case("negative_scores", PACKED, TINY, core_set, false, move |harness| {
        harness.attend(&packed().with_negative_scores(), core_set)
    });
    let splits = attend_case("splits", PACKED, TINY, core_set, false, move |harness| {
        harness.attend(&packed().in_splits_of(2), core_set)
    });
    // The quick case covers shared K/V heads, whole and split segments, and a window.
    let (quick, mask) = (matches!(core_set, CoreSet::One), Mask::Causal { window: Some(60) });
    let small = attend_case("small_splits", SHARED, GROUPED, core_set, quick, move |harness| {
        harness
            .attend(&AttentionCase::new(SHARED, GROUPED, mask, [1, 2, 2]).in_splits_of(1), core_set)
    });
    let alone = attend_case("alone", PACKED, TINY, core_set, false, move |harness| {
        harness.attend_alone(&packed().in_splits_of(2), core_set)
    });
    whole.chain([small, alone.without_cost(), negative, splits])
}

fn attend_case(
    name: &str,
    runs: Runs,
    heads: Heads,
    core_set: CoreSet,
    quick: bool,
    run: impl Fn(&mut Harness) -> Result<Outcome> + 'static,
) -> Case {
    let tokens: usize = runs.iter().map(|(_, tokens)| tokens).sum();
    let requirement =
        if [MINIMAL, GROUPED].contains(&heads) { Requirement::Basic } else { Requirement::Speed };
    case(&format!("attend/{name}"), tokens, heads.0 * heads.2, core_set, quick, requirement, run)
}

/// K or V of a cache, `[blocks, 64, width]`: values at the positions of the sequences, stale ones
/// behind their ends, NaN in unused KV blocks and in those of the last sequence.
fn cached(sequences: &[Sequence], blocks: usize, width: usize, seed: u32) -> Vec<f32> {
    let mut rows = vec![f32::NAN; blocks * KV_BLOCK_SIZE * width];
    let fresh = values(rows.len(), seed);
    let finite = &sequences[..sequences.len() - 1];
    for block in finite.iter().flat_map(Sequence::blocks) {
        let first = *block as usize * KV_BLOCK_SIZE * width;
        rows[first..first + KV_BLOCK_SIZE * width].fill(STALE);
    }
    for slot in finite.iter().flat_map(Sequence::slots) {
        let row = slot * width..(slot + 1) * width;
        rows[row.clone()].copy_from_slice(&fresh[row]);
    }
    rows
}

/// The same in the layout of the device: `[blocks, kv_heads, 64, head_dim]`.
fn by_head(rows: &[f32], dim: usize, width: usize) -> Vec<f32> {
    let blocks = rows.chunks_exact(KV_BLOCK_SIZE * width);
    let heads = blocks.flat_map(|block| {
        (0..width / dim).flat_map(move |head| {
            block.chunks_exact(width).flat_map(move |row| &row[head * dim..(head + 1) * dim])
        })
    });
    heads.copied().collect()
}

/// The minimum is every query once, K and V that each sequence sees once, the products for scores
/// and values, and every result once. The overhead is what the kernel computes besides, and what
/// several cores read because they work at the same time.
fn expect_attention(
    expected: &mut ExpectedCost,
    input: &AttentionCase,
    slices: &[SeqSlice<'_>],
    readers: u64,
) {
    let (dim, heads) = (input.shape.head_dim as u64, input.attention.heads as u64);
    let kv_heads = input.shape.kv_heads as u64;
    let (size, max_blocks) = (KV_BLOCK_SIZE as u32, input.split_blocks as u32);
    let (tiles, block_bytes) = (dim / SIDE as u64, 2 * 2 * u64::from(size) * dim);
    let total: usize = slices.iter().map(|slice| slice.len).sum();
    let query = 2 * SIDE as u64 * heads * dim;
    expected.read += total.div_ceil(SIDE) as u64 * query;
    expected.written += 2 * total as u64 * heads * dim;
    let (mut row, mut queries) = (0, 0);
    for slice in slices {
        let blocks_of = |positions: Range<u32>| {
            let visible = |position| input.attention.mask.visible(slice, position);
            visible(positions.start).start / size..visible(positions.end - 1).end.div_ceil(size)
        };
        let mut left = slice.start..slice.start + slice.len as u32;
        let once = kv_heads * blocks_of(left.clone()).len() as u64 * block_bytes;
        expected.read += once;
        let mut read = 0;
        while !left.is_empty() {
            let rows = left.len().min(SIDE - row % SIDE) as u32;
            let visible = blocks_of(left.start..left.start + rows);
            let splits = u64::from(visible.end.div_ceil(max_blocks) - visible.start / max_blocks);
            let blocks = visible.len() as u64;
            queries += splits;
            read += readers * kv_heads * blocks * block_bytes;
            expected.products += heads * blocks * 4 * tiles * TILE_PRODUCT;
            let mut other = 6 * blocks + 2 * (blocks - splits);
            if splits > 1 {
                let partials = splits * heads * (tiles + 2) * 4096;
                expected.overhead(CostKind::Written, partials, "partial results of splits");
                expected.overhead(CostKind::Read, partials, "partial results of splits");
                other += splits;
            }
            let why = "masks, maxima, sums of weights and factors of earlier sums";
            expected.overhead(CostKind::Products, heads * other * TILE_PRODUCT, why);
            left.start += rows;
            row += rows as usize;
        }
        expected.overhead(
            CostKind::Read,
            read - once,
            "K and V for heads and rows of tiles that are computed in parallel",
        );
    }
    let again = queries - total.div_ceil(SIDE) as u64;
    expected.overhead(
        CostKind::Read,
        again * query,
        "queries for each sequence and split in their row of tiles",
    );
}

/// Sequences with their KV blocks, and the queries of their tokens. The last token is of one more
/// sequence whose K and V are NaN: it shares tiles with the others, and only its own result may be
/// NaN.
struct AttentionCase {
    shape: KvShape,
    attention: Attention,
    /// KV blocks per split.
    split_blocks: usize,
    readers: Readers,
    sequences: Vec<Sequence>,
    /// Tokens of all but the last sequence.
    tokens: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl AttentionCase {
    fn new(runs: Runs, heads: Heads, mask: Mask, readers: Readers) -> Self {
        let (heads, kv_heads, head_dim) = heads;
        let runs = [runs, &[(40, 1)]].concat();
        let ends = runs.iter().map(|(start, tokens)| *start as usize + tokens);
        let blocks = ends.map(|end| end.div_ceil(KV_BLOCK_SIZE)).sum::<usize>() + 3;
        let (group, kind) = (KvGroup::Full, KvType::Bf16);
        let shape = KvShape { group, blocks, kv_heads, head_dim, kind };
        let attention = Attention { heads, head_dim, scale: 3.87 / (head_dim as f32).sqrt(), mask };
        let sequences = Sequence::all(&runs, blocks);
        let tokens = runs.iter().map(|(_, tokens)| tokens).sum::<usize>() - 1;
        let cached = |seed| cached(&sequences, blocks, kv_heads * head_dim, seed);
        let (k, v) = (cached(22), cached(23));
        let q = values((tokens + 1) * heads * head_dim, 21);
        let split_blocks = op::KV_SPLIT_BLOCKS;
        Self { shape, attention, split_blocks, readers, sequences, tokens, q, k, v }
    }

    /// The same with scores far below zero.
    fn with_negative_scores(mut self) -> Self {
        self.q.iter_mut().for_each(|q| *q = -1.0 - q.abs());
        self.k.iter_mut().for_each(|k| *k = k.abs());
        self
    }

    /// The same in splits of `split_blocks` KV blocks.
    fn in_splits_of(self, split_blocks: usize) -> Self {
        Self { split_blocks, ..self }
    }

    fn width(&self) -> usize {
        self.shape.kv_heads * self.shape.head_dim
    }

    fn cols(&self) -> usize {
        self.attention.heads * self.attention.head_dim
    }
}

impl Harness {
    fn attend(&mut self, input: &AttentionCase, core_set: CoreSet) -> Result<Outcome> {
        let AttentionCase { shape, attention, sequences, .. } = input;
        let slices = slices(sequences);
        let cache = self.cache(input)?;
        let actual = self.attend_on_device(input, &cache, &slices, &input.q, core_set)?;

        let (width, cols) = (input.width(), input.cols());
        let mut kv = self.cpu.alloc_kv(*shape)?;
        let (k, v) = (self.on_cpu(&input.k, width)?, self.on_cpu(&input.v, width)?);
        self.cpu.write_kv(&mut kv, &[Sequence::of_all(shape.blocks).slice()], &k, &v)?;
        let mut reference = self.cpu.alloc(input.tokens + 1, cols)?;
        self.cpu.attend(&self.on_cpu(&input.q, cols)?, &kv, &slices, attention, &mut reference)?;
        let finite = input.tokens * cols;
        // The softmax weights are rounded to BF16 before they are multiplied.
        let reference = self.of_cpu(&reference, finite)?;
        let outcome = Outcome::near(&actual[..finite], &reference).rounded(2);
        Ok(outcome.untouched(&actual[finite + cols..], CANARY))
    }

    /// Every token alone gives the same bits as in the batch.
    fn attend_alone(&mut self, input: &AttentionCase, core_set: CoreSet) -> Result<Outcome> {
        let cols = input.cols();
        let cache = self.cache(input)?;
        let batch = slices(&input.sequences);
        let actual = self.attend_on_device(input, &cache, &batch, &input.q, core_set)?;
        let tokens = batch.iter().flat_map(|slice| {
            (slice.start..slice.start + slice.len as u32).map(|start| SeqSlice {
                start,
                len: 1,
                ..*slice
            })
        });
        let mut reference = Vec::new();
        for (slice, q) in tokens.zip(input.q.chunks_exact(cols)).take(input.tokens) {
            reference.extend_from_slice(
                &self.attend_on_device(input, &cache, &[slice], q, core_set)?[..cols],
            );
        }
        Ok(Outcome::exact(&actual[..input.tokens * cols], &reference))
    }

    fn cache(&self, input: &AttentionCase) -> Result<KvCache> {
        let (dim, width) = (input.shape.head_dim, input.width());
        let mut cache = KvCache::new(self.programs.device(), input.shape)?;
        cache.write(&by_head(&input.k, dim, width), &by_head(&input.v, dim, width))?;
        Ok(cache)
    }

    /// The results of the tokens of `slices`, and canaries in the padding rows of the last tile.
    fn attend_on_device(
        &mut self,
        input: &AttentionCase,
        cache: &KvCache,
        slices: &[SeqSlice<'_>],
        q: &[f32],
        core_set: CoreSet,
    ) -> Result<Vec<f32>> {
        let AttentionCase { shape, attention, .. } = input;
        let (device, cols) = (self.programs.device(), input.cols());
        // One segment of the capacity is not in use.
        let capacity = Segments::count(slices, attention.mask, input.split_blocks) + 1;
        let mut segments = Segments::new(device, capacity, input.split_blocks)?;
        segments.write(slices, shape.group, attention.mask)?;
        // The queries of padding rows are NaN.
        let mut padded = q.to_vec();
        padded.resize((q.len() / cols).next_multiple_of(SIDE) * cols, f32::NAN);
        let (q, out) = (self.on_device(&padded, cols)?, self.fresh(padded.len() / cols, cols)?);
        let partials = op::attend_partials(&q, cache, &segments)?;
        let scale = attention.scale;
        for plan in op::attend(&q, cache, &segments, &partials, scale, &out, core_set.cores(self)) {
            self.programs.run(&plan, true)?;
        }
        let readers = input.readers[core_set as usize];
        expect_attention(&mut self.expected, input, slices, readers);
        let units = readers * shape.kv_heads as u64;
        self.expected.read += segments.bytes();
        self.expected.cores = core_set.busy(self, capacity * units as usize);
        // The readers of both plans read whole segments, the writers only the headers.
        let headers = u64::from(segments.capacity()) * 64;
        let again = 2 * units * (segments.bytes() + headers) - segments.bytes();
        self.expected.overhead(CostKind::Read, again, "segments for each of their units");
        out.read()
    }
}
