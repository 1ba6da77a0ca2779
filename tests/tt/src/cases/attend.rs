//! Attention over pages.

use muse_core::Result;
use muse_core::contract::{
    Attention, Backend, KvShape, KvType, Mask, PAGE_TOKENS, PageGroup, Place,
};
use muse_core::quant::tile::SIDE;
use muse_tt::{KvPages, Segments, op};

use crate::lane::Needs;

use super::sequence::{Sequence, places};
use super::{Bench, CANARY, Case, Least, On, Outcome, TILE_PRODUCT, case, values};

/// What rows of ended sequences may have left in the pages of a running one.
const STALE: f32 = 3e4;

/// Heads, K/V heads and their width.
type Heads = (usize, usize, usize);
/// The least that there can be, for a slow simulator, and with heads that share K and V.
const LEAST: Heads = (1, 1, 32);
const GROUPED: Heads = (2, 1, 32);
/// As in the tests of the published model, in `nano`, and in the model itself.
const TINY: Heads = (4, 2, 64);
const NANO: Heads = (8, 2, 32);
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

/// Blocks that are verified, alone and beside other sequences, and chunks of prompts; every mask.
pub(super) fn cases(on: On) -> impl Iterator<Item = Case> {
    let (all, window) = (Mask::Causal { window: None }, Mask::Causal { window: Some(100) });
    let block = Mask::Block { reach: 100 };
    let named = [
        ("least", SHORT, LEAST, Mask::Causal { window: Some(30) }),
        ("grouped", SHARED, GROUPED, all),
        ("verify", VERIFY, TINY, all),
        ("verify_window", VERIFY, NANO, Mask::Causal { window: Some(32) }),
        ("packed", PACKED, TINY, all),
        ("packed_window", PACKED, NANO, window),
        ("chunk", CHUNK, NANO, all),
        ("chunk_window", SECOND, TINY, window),
        ("block", VERIFY, TINY, Mask::Block { reach: 40 }),
        ("block_packed", PACKED, NANO, block),
        ("long", LONG, NANO, all),
        ("real_verify", VERIFY, REAL, all),
        ("real_deep", DEEP, REAL, all),
        ("real_deep_window", DEEP, REAL, window),
        ("real_packed", PACKED, REAL, window),
        ("real_chunk", SECOND, REAL, all),
        ("real_block", PACKED, REAL, block),
        ("real_draft", DRAFT, DRAFTER, Mask::Block { reach: 2047 }),
    ];
    let near = named.into_iter().map(move |(name, runs, heads, mask)| {
        let quick = name == "least" && matches!(on, On::One);
        sized(name, runs, heads, on, quick, move |bench| {
            bench.attend(&Setting::new(runs, heads, mask), on)
        })
    });
    let below = sized("below", PACKED, NANO, on, false, move |bench| {
        bench.attend(&Setting::new(PACKED, NANO, window).below(), on)
    });
    let pieces = sized("pieces", PACKED, NANO, on, false, move |bench| {
        bench.attend(&Setting::new(PACKED, NANO, window).in_pieces(2), on)
    });
    let small = sized("small_pieces", SHARED, GROUPED, on, false, move |bench| {
        bench.attend(&Setting::new(SHARED, GROUPED, all).in_pieces(1), on)
    });
    let alone = sized("alone", PACKED, NANO, on, false, move |bench| {
        bench.attend_alone(&Setting::new(PACKED, NANO, window).in_pieces(2), on)
    });
    near.chain([below, pieces, small, alone])
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
    let mut rows = vec![f32::NAN; pages * PAGE_TOKENS * width];
    let fresh = values(rows.len(), seed);
    let sound = &sequences[..sequences.len() - 1];
    for page in sound.iter().flat_map(Sequence::pages) {
        let first = *page as usize * PAGE_TOKENS * width;
        rows[first..first + PAGE_TOKENS * width].fill(STALE);
    }
    for slot in sound.iter().flat_map(Sequence::slots) {
        let row = slot * width..(slot + 1) * width;
        rows[row.clone()].copy_from_slice(&fresh[row]);
    }
    rows
}

/// The same as the device lays it out: `[page, head, 64, head_dim]`.
fn by_head(rows: &[f32], dim: usize, width: usize) -> Vec<f32> {
    let pages = rows.chunks_exact(PAGE_TOKENS * width);
    let heads = pages.flat_map(|page| {
        (0..width / dim).flat_map(move |head| {
            page.chunks_exact(width).flat_map(move |row| &row[head * dim..(head + 1) * dim])
        })
    });
    heads.copied().collect()
}

/// Of each piece of a segment: its queries once, its pages once a unit of heads, and products of
/// scores and values, masks, the largest subtracted, totals, and what earlier pages are multiplied by.
/// Pieces write what they hand over, which is read once. The numbers of segments come on top.
fn add_least(least: &mut Least, setting: &Setting, places: &[Place<'_>], units: u64) {
    let (dim, heads) = (setting.shape.head_dim as u64, setting.attention.heads as u64);
    let (page, most) = (PAGE_TOKENS as u32, setting.piece_pages as u32);
    let tiles = dim / SIDE as u64;
    let mut row = 0;
    for place in places {
        let mut left = place.start..place.start + place.rows as u32;
        while !left.is_empty() {
            let rows = left.len().min(SIDE - row % SIDE);
            let (first, last) = (left.start, left.start + rows as u32 - 1);
            let seen = |position| setting.attention.mask.visible(place, position);
            let (begin, end) = (seen(first).start / page, seen(last).end.div_ceil(page));
            let pieces = u64::from(end.div_ceil(most) - begin / most);
            let pages = u64::from(end - begin);
            let mut products = pages * (4 * (tiles + 1) + 2) + 2 * (pages - pieces);
            least.read += pieces * 2 * 32 * heads * dim;
            least.read += units * pages * 2 * 2 * u64::from(page) * dim;
            least.written += 2 * rows as u64 * heads * dim;
            if pieces > 1 {
                let handed_over = pieces * heads * (tiles + 2) * 4096;
                least.written += handed_over;
                least.read += handed_over;
                products += pieces;
            }
            least.multiply_adds += heads * products * TILE_PRODUCT;
            left.start += rows as u32;
            row += rows;
        }
    }
}

/// Sequences over pages, and the queries of the rows that run. Behind them runs one more row, of a
/// sequence whose K and V are no numbers: it shares tiles with them, and only its own result may
/// show it.
struct Setting {
    shape: KvShape,
    attention: Attention,
    /// Pages of a piece.
    piece_pages: usize,
    sequences: Vec<Sequence>,
    /// Rows of sound sequences.
    rows: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Setting {
    fn new(runs: Runs, heads: Heads, mask: Mask) -> Self {
        let (heads, kv_heads, head_dim) = heads;
        let runs = [runs, &[(40, 1)]].concat();
        let ends = runs.iter().map(|(start, rows)| *start as usize + rows);
        let pages = ends.map(|end| end.div_ceil(PAGE_TOKENS)).sum::<usize>() + 3;
        let (group, kind) = (PageGroup::Full, KvType::Bf16);
        let shape = KvShape { group, pages, kv_heads, head_dim, kind };
        let attention = Attention { heads, head_dim, scale: 3.87 / (head_dim as f32).sqrt(), mask };
        let sequences = Sequence::all(&runs, pages);
        let rows = runs.iter().map(|(_, rows)| rows).sum::<usize>() - 1;
        let stored = |seed| stored(&sequences, pages, kv_heads * head_dim, seed);
        let (k, v) = (stored(22), stored(23));
        let q = values((rows + 1) * heads * head_dim, 21);
        Self { shape, attention, piece_pages: op::PIECE_PAGES, sequences, rows, q, k, v }
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
        let places = places(sequences);
        let store = self.store(setting)?;
        let got = self.attended(setting, &store, &places, &setting.q, on)?;

        let (width, cols) = (setting.width(), setting.cols());
        let mut kv = self.cpu.alloc_kv(*shape)?;
        let (k, v) = (self.on_cpu(&setting.k, width)?, self.on_cpu(&setting.v, width)?);
        self.cpu.write_kv(&mut kv, &[Sequence::of_all(shape.pages).place()], &k, &v)?;
        let mut want = self.cpu.alloc(setting.rows + 1, cols)?;
        self.cpu.attend(&self.on_cpu(&setting.q, cols)?, &kv, &places, attention, &mut want)?;
        let sound = setting.rows * cols;
        let outcome = Outcome::near(&got[..sound], &self.of_cpu(&want, sound)?);
        Ok(outcome.untouched(&got[sound + cols..], CANARY))
    }

    /// Every row alone gives the bits that it has in company.
    fn attend_alone(&mut self, setting: &Setting, on: On) -> Result<Outcome> {
        let cols = setting.cols();
        let store = self.store(setting)?;
        let together = places(&setting.sequences);
        let got = self.attended(setting, &store, &together, &setting.q, on)?;
        let rows = together.iter().flat_map(|place| {
            (place.start..place.start + place.rows as u32).map(|start| Place {
                start,
                rows: 1,
                ..*place
            })
        });
        let mut want = Vec::new();
        for (place, q) in rows.zip(setting.q.chunks_exact(cols)).take(setting.rows) {
            want.extend_from_slice(&self.attended(setting, &store, &[place], q, on)?[..cols]);
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
        places: &[Place<'_>],
        q: &[f32],
        on: On,
    ) -> Result<Vec<f32>> {
        let Setting { shape, attention, .. } = setting;
        let (device, cols) = (self.programs.device(), setting.cols());
        // Room for one more, which is not in use.
        let room = Segments::count(places, attention.mask, setting.piece_pages) + 1;
        let mut segments = Segments::new(device, room, setting.piece_pages)?;
        segments.write(places, shape.group, attention.mask)?;
        // The queries of nobody are no numbers.
        let mut filled = q.to_vec();
        filled.resize((q.len() / cols).next_multiple_of(SIDE) * cols, f32::NAN);
        let (q, out) = (self.on_device(&filled, cols)?, self.fresh(filled.len() / cols, cols)?);
        let partials = op::attend_partials(&q, store, &segments)?;
        let scale = attention.scale;
        for plan in op::attend(&q, store, &segments, &partials, scale, &out, on.cores(self)) {
            self.programs.run(&plan, true)?;
        }
        let units = u64::from(op::attend_units(&q, store, &segments, on.cores(self)));
        add_least(&mut self.least, setting, places, units);
        self.least.read += 2 * units * (segments.bytes() + u64::from(segments.room()) * 64);
        out.read()
    }
}
