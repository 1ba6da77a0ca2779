//! Attention over pages.

use std::ops::Range;

use muse_core::Result;
use muse_core::contract::{
    Attention, Backend, KV_BLOCK_SIZE, KvGroup, KvShape, KvType, Mask, SeqSlice,
};
use muse_core::quant::tile::SIDE;
use muse_tt::{KvPages, Segments, op};

use crate::lane::Needs;

use super::sequence::{Sequence, slices};
use super::{Bench, CANARY, Case, Due, Kind, On, Outcome, TILE_PRODUCT, case, values};

/// What rows of ended sequences may have left in the pages of a running one.
const STALE: f32 = 3e4;

/// Heads, K/V heads and their width.
type Heads = (usize, usize, usize);
/// The least that there can be, for a slow simulator, and with heads that share K and V.
const LEAST: Heads = (1, 1, 32);
const GROUPED: Heads = (2, 1, 32);
/// As in the random checkpoint `tiny`, in `nano`, and in the published model.
const TINY: Heads = (8, 2, 32);
const NANO: Heads = (4, 2, 64);
const REAL: Heads = (32, 2, 128);
/// As in the model's drafter.
const DRAFTER: Heads = (32, 8, 128);

/// `(first position, rows)` of each sequence.
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

/// How many cores of one, a row and the grid read a K/V head: its query heads are dealt out to as
/// many as would have nothing to do otherwise.
type Readers = [u64; 3];

/// Blocks that are verified, alone and beside other sequences, and chunks of prompts; every mask.
pub(super) fn cases(on: On) -> impl Iterator<Item = Case> {
    let (all, window) = (Mask::Causal { window: None }, Mask::Causal { window: Some(100) });
    let (near, narrow) = (Mask::Causal { window: Some(32) }, Mask::Causal { window: Some(30) });
    let block = |reach| Mask::DraftBlock { reach };
    let named: [(&str, Runs, Heads, Mask, Readers); 18] = [
        ("least", SHORT, LEAST, narrow, [1, 1, 1]),
        ("grouped", SHARED, GROUPED, all, [1, 2, 2]),
        ("verify", VERIFY, NANO, all, [1, 2, 2]),
        ("verify_window", VERIFY, TINY, near, [1, 2, 4]),
        ("packed", PACKED, NANO, all, [1, 1, 2]),
        ("packed_window", PACKED, TINY, window, [1, 1, 4]),
        ("chunk", CHUNK, TINY, all, [1, 1, 4]),
        ("chunk_window", SECOND, NANO, window, [1, 1, 2]),
        ("block", VERIFY, NANO, block(40), [1, 2, 2]),
        ("block_packed", PACKED, TINY, block(100), [1, 1, 4]),
        ("long", LONG, TINY, all, [1, 2, 4]),
        ("real_verify", VERIFY, REAL, all, [1, 2, 16]),
        ("real_deep", DEEP, REAL, all, [1, 2, 16]),
        ("real_deep_window", DEEP, REAL, window, [1, 2, 16]),
        ("real_packed", PACKED, REAL, window, [1, 1, 16]),
        ("real_chunk", SECOND, REAL, all, [1, 1, 16]),
        ("real_block", PACKED, REAL, block(100), [1, 1, 16]),
        ("real_draft", DRAFT, DRAFTER, block(2047), [1, 1, 4]),
    ];
    let whole = named.into_iter().map(move |(name, runs, heads, mask, readers)| {
        sized(name, runs, heads, on, false, move |bench| {
            bench.attend(&Setting::new(runs, heads, mask, readers), on)
        })
    });
    let packed = move || Setting::new(PACKED, TINY, window, [1, 1, 4]);
    let below =
        sized("below", PACKED, TINY, on, false, move |bench| bench.attend(&packed().below(), on));
    let pieces = sized("pieces", PACKED, TINY, on, false, move |bench| {
        bench.attend(&packed().in_pieces(2), on)
    });
    // The quick one: heads that share keys, whole segments and pieces, a window.
    let (quick, mask) = (matches!(on, On::One), Mask::Causal { window: Some(60) });
    let small = sized("small_pieces", SHARED, GROUPED, on, quick, move |bench| {
        bench.attend(&Setting::new(SHARED, GROUPED, mask, [1, 2, 2]).in_pieces(1), on)
    });
    let alone = sized("alone", PACKED, TINY, on, false, move |bench| {
        bench.attend_alone(&packed().in_pieces(2), on)
    });
    whole.chain([small, alone.uncounted(), below, pieces])
}

fn sized(
    name: &str,
    runs: Runs,
    heads: Heads,
    on: On,
    quick: bool,
    run: impl Fn(&mut Bench) -> Result<Outcome> + 'static,
) -> Case {
    let rows: usize = runs.iter().map(|(_, rows)| rows).sum();
    let needs = if [LEAST, GROUPED].contains(&heads) { Needs::Little } else { Needs::Speed };
    case(&format!("attend/{name}"), rows, heads.0 * heads.2, on, quick, needs, run)
}

/// A store's rows of K or V, page by page: values where the sequences have rows, stale ones behind
/// them, and no numbers in the pages of others and of the last sequence.
fn stored(sequences: &[Sequence], pages: usize, width: usize, seed: u32) -> Vec<f32> {
    let mut rows = vec![f32::NAN; pages * KV_BLOCK_SIZE * width];
    let fresh = values(rows.len(), seed);
    let sound = &sequences[..sequences.len() - 1];
    for page in sound.iter().flat_map(Sequence::pages) {
        let first = *page as usize * KV_BLOCK_SIZE * width;
        rows[first..first + KV_BLOCK_SIZE * width].fill(STALE);
    }
    for slot in sound.iter().flat_map(Sequence::slots) {
        let row = slot * width..(slot + 1) * width;
        rows[row.clone()].copy_from_slice(&fresh[row]);
    }
    rows
}

/// The same as the device lays it out: `[page, head, 64, head_dim]`.
fn by_head(rows: &[f32], dim: usize, width: usize) -> Vec<f32> {
    let pages = rows.chunks_exact(KV_BLOCK_SIZE * width);
    let heads = pages.flat_map(|page| {
        (0..width / dim).flat_map(move |head| {
            page.chunks_exact(width).flat_map(move |row| &row[head * dim..(head + 1) * dim])
        })
    });
    heads.copied().collect()
}

/// The least is every query once, K and V that a sequence sees once, products of scores and of values,
/// and every result once. Beyond it are what the kernel computes along, and what cores that work at
/// once read for themselves.
fn attention_due(due: &mut Due, setting: &Setting, slices: &[SeqSlice<'_>], readers: u64) {
    let (dim, heads) = (setting.shape.head_dim as u64, setting.attention.heads as u64);
    let kv_heads = setting.shape.kv_heads as u64;
    let (page, most) = (KV_BLOCK_SIZE as u32, setting.piece_pages as u32);
    let (tiles, block_bytes) = (dim / SIDE as u64, 2 * 2 * u64::from(page) * dim);
    let total: usize = slices.iter().map(|slice| slice.len).sum();
    let query = 2 * SIDE as u64 * heads * dim;
    due.read += total.div_ceil(SIDE) as u64 * query;
    due.written += 2 * total as u64 * heads * dim;
    let (mut row, mut queries) = (0, 0);
    for slice in slices {
        let pages_of = |rows: Range<u32>| {
            let seen = |position| setting.attention.mask.visible(slice, position);
            seen(rows.start).start / page..seen(rows.end - 1).end.div_ceil(page)
        };
        let mut left = slice.start..slice.start + slice.len as u32;
        let once = kv_heads * pages_of(left.clone()).len() as u64 * block_bytes;
        due.read += once;
        let mut read = 0;
        while !left.is_empty() {
            let rows = left.len().min(SIDE - row % SIDE) as u32;
            let seen = pages_of(left.start..left.start + rows);
            let pieces = u64::from(seen.end.div_ceil(most) - seen.start / most);
            let pages = seen.len() as u64;
            queries += pieces;
            read += readers * kv_heads * pages * block_bytes;
            due.products += heads * pages * 4 * tiles * TILE_PRODUCT;
            let mut along = 6 * pages + 2 * (pages - pieces);
            if pieces > 1 {
                let handed_over = pieces * heads * (tiles + 2) * 4096;
                due.beyond(Kind::Written, handed_over, "what pieces hand over");
                due.beyond(Kind::Read, handed_over, "what pieces hand over");
                along += pieces;
            }
            let why = "masks, the largest of a row, totals and what earlier sums keep";
            due.beyond(Kind::Products, heads * along * TILE_PRODUCT, why);
            left.start += rows;
            row += rows as usize;
        }
        due.beyond(Kind::Read, read - once, "K and V for heads and rows of tiles that run at once");
    }
    let again = queries - total.div_ceil(SIDE) as u64;
    due.beyond(Kind::Read, again * query, "queries for each sequence and piece in their tile");
}

/// Sequences over pages, and the queries of the rows that run. Behind them runs one more row, of a
/// sequence whose K and V are no numbers: it shares tiles with them, and only its own result may
/// show it.
struct Setting {
    shape: KvShape,
    attention: Attention,
    /// Pages of a piece.
    piece_pages: usize,
    readers: Readers,
    sequences: Vec<Sequence>,
    /// Rows of sound sequences.
    rows: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Setting {
    fn new(runs: Runs, heads: Heads, mask: Mask, readers: Readers) -> Self {
        let (heads, kv_heads, head_dim) = heads;
        let runs = [runs, &[(40, 1)]].concat();
        let ends = runs.iter().map(|(start, rows)| *start as usize + rows);
        let pages = ends.map(|end| end.div_ceil(KV_BLOCK_SIZE)).sum::<usize>() + 3;
        let (group, kind) = (KvGroup::Full, KvType::Bf16);
        let shape = KvShape { group, blocks: pages, kv_heads, head_dim, kind };
        let attention = Attention { heads, head_dim, scale: 3.87 / (head_dim as f32).sqrt(), mask };
        let sequences = Sequence::all(&runs, pages);
        let rows = runs.iter().map(|(_, rows)| rows).sum::<usize>() - 1;
        let stored = |seed| stored(&sequences, pages, kv_heads * head_dim, seed);
        let (k, v) = (stored(22), stored(23));
        let q = values((rows + 1) * heads * head_dim, 21);
        let piece_pages = op::PIECE_PAGES;
        Self { shape, attention, piece_pages, readers, sequences, rows, q, k, v }
    }

    /// The same with scores far below zero.
    fn below(mut self) -> Self {
        self.q.iter_mut().for_each(|q| *q = -1.0 - q.abs());
        self.k.iter_mut().for_each(|k| *k = k.abs());
        self
    }

    /// The same in pieces of one page or two.
    fn in_pieces(self, piece_pages: usize) -> Self {
        Self { piece_pages, ..self }
    }

    fn width(&self) -> usize {
        self.shape.kv_heads * self.shape.head_dim
    }

    fn cols(&self) -> usize {
        self.attention.heads * self.attention.head_dim
    }
}

impl Bench {
    fn attend(&mut self, setting: &Setting, on: On) -> Result<Outcome> {
        let Setting { shape, attention, sequences, .. } = setting;
        let slices = slices(sequences);
        let store = self.store(setting)?;
        let got = self.attended(setting, &store, &slices, &setting.q, on)?;

        let (width, cols) = (setting.width(), setting.cols());
        let mut kv = self.cpu.alloc_kv(*shape)?;
        let (k, v) = (self.on_cpu(&setting.k, width)?, self.on_cpu(&setting.v, width)?);
        self.cpu.write_kv(&mut kv, &[Sequence::of_all(shape.blocks).slice()], &k, &v)?;
        let mut want = self.cpu.alloc(setting.rows + 1, cols)?;
        self.cpu.attend(&self.on_cpu(&setting.q, cols)?, &kv, &slices, attention, &mut want)?;
        let sound = setting.rows * cols;
        // Weights of keys are rounded before they are multiplied.
        let outcome = Outcome::near(&got[..sound], &self.of_cpu(&want, sound)?).rounded(2);
        Ok(outcome.untouched(&got[sound + cols..], CANARY))
    }

    /// Every row alone gives the bits that it has in company.
    fn attend_alone(&mut self, setting: &Setting, on: On) -> Result<Outcome> {
        let cols = setting.cols();
        let store = self.store(setting)?;
        let together = slices(&setting.sequences);
        let got = self.attended(setting, &store, &together, &setting.q, on)?;
        let rows = together.iter().flat_map(|slice| {
            (slice.start..slice.start + slice.len as u32).map(|start| SeqSlice {
                start,
                len: 1,
                ..*slice
            })
        });
        let mut want = Vec::new();
        for (slice, q) in rows.zip(setting.q.chunks_exact(cols)).take(setting.rows) {
            want.extend_from_slice(&self.attended(setting, &store, &[slice], q, on)?[..cols]);
        }
        Ok(Outcome::exact(&got[..setting.rows * cols], &want))
    }

    fn store(&self, setting: &Setting) -> Result<KvPages> {
        let (dim, width) = (setting.shape.head_dim, setting.width());
        let mut store = KvPages::new(self.programs.device(), setting.shape)?;
        store.write(&by_head(&setting.k, dim, width), &by_head(&setting.v, dim, width))?;
        Ok(store)
    }

    /// Results of the rows of `places`, and canaries in the rows that fill the last tile up.
    fn attended(
        &mut self,
        setting: &Setting,
        store: &KvPages,
        slices: &[SeqSlice<'_>],
        q: &[f32],
        on: On,
    ) -> Result<Vec<f32>> {
        let Setting { shape, attention, .. } = setting;
        let (device, cols) = (self.programs.device(), setting.cols());
        // Room for one more, which is not in use.
        let room = Segments::count(slices, attention.mask, setting.piece_pages) + 1;
        let mut segments = Segments::new(device, room, setting.piece_pages)?;
        segments.write(slices, shape.group, attention.mask)?;
        // The queries of nobody are no numbers.
        let mut filled = q.to_vec();
        filled.resize((q.len() / cols).next_multiple_of(SIDE) * cols, f32::NAN);
        let (q, out) = (self.on_device(&filled, cols)?, self.fresh(filled.len() / cols, cols)?);
        let partials = op::attend_partials(&q, store, &segments)?;
        let scale = attention.scale;
        for plan in op::attend(&q, store, &segments, &partials, scale, &out, on.cores(self)) {
            self.programs.run(&plan, true)?;
        }
        let readers = setting.readers[on as usize];
        attention_due(&mut self.due, setting, slices, readers);
        let units = readers * shape.kv_heads as u64;
        self.due.read += segments.bytes();
        self.due.cores = on.busy(self, room * units as usize);
        // Both plans read all of a segment's numbers, and their writers how they begin.
        let heads = u64::from(segments.room()) * 64;
        let numbers = 2 * units * (segments.bytes() + heads) - segments.bytes();
        self.due.beyond(Kind::Read, numbers, "numbers of segments for each of their units");
        out.read()
    }
}
