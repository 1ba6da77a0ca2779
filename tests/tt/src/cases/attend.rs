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

const PAGES: usize = 24;
/// What rows of ended sequences may have left in the pages of a running one.
const STALE: f32 = 3e4;

/// Heads, K/V heads and their width.
type Heads = (usize, usize, usize);
/// The least that there can be, for a slow simulator.
const LEAST: Heads = (2, 1, 32);
/// As in the tests of the published model, in `nano`, and in the model itself.
const TINY: Heads = (4, 2, 64);
const NANO: Heads = (8, 2, 32);
const REAL: Heads = (32, 2, 128);

/// `(first position, rows)` of each sequence.
type Runs = &'static [(u32, usize)];
const SHORT: Runs = &[(62, 4)];
const SHARED: Runs = &[(62, 3), (3, 1)];
const VERIFY: Runs = &[(70, 16)];
const PACKED: Runs = &[(150, 9), (63, 2), (0, 3), (200, 1)];
const CHUNK: Runs = &[(0, 70)];
const SECOND: Runs = &[(64, 96)];
const DEEP: Runs = &[(440, 32)];

/// Blocks that are verified, alone and beside other sequences, and chunks of prompts; every mask.
pub(super) fn cases(on: On) -> impl Iterator<Item = Case> {
    let (all, window) = (Mask::Causal { window: None }, Mask::Causal { window: Some(100) });
    let block = Mask::Block { reach: 100 };
    let named = [
        ("least", SHORT, LEAST, Mask::Causal { window: Some(30) }),
        ("least_packed", SHARED, LEAST, all),
        ("verify", VERIFY, TINY, all),
        ("verify_window", VERIFY, NANO, Mask::Causal { window: Some(32) }),
        ("packed", PACKED, TINY, all),
        ("packed_window", PACKED, NANO, window),
        ("chunk", CHUNK, NANO, all),
        ("chunk_window", SECOND, TINY, window),
        ("block", VERIFY, TINY, Mask::Block { reach: 40 }),
        ("block_packed", PACKED, NANO, block),
        ("real_verify", VERIFY, REAL, all),
        ("real_deep", DEEP, REAL, all),
        ("real_deep_window", DEEP, REAL, window),
        ("real_packed", PACKED, REAL, window),
        ("real_chunk", SECOND, REAL, all),
        ("real_block", PACKED, REAL, block),
    ];
    named.into_iter().map(move |(name, runs, heads, mask)| {
        let rows: usize = runs.iter().map(|(_, rows)| rows).sum();
        let quick = name == "least" && matches!(on, On::One);
        let needs = if heads == LEAST { Needs::Little } else { Needs::Speed };
        let run = move |bench: &mut Bench| bench.attend(runs, heads, mask, on);
        case(&format!("attend/{name}"), rows, heads.0 * heads.2, on, quick, needs, run)
    })
}

/// A store's rows of K or V, page by page: values where the sequences have rows, stale ones behind
/// them, and no numbers in the pages of others and of the last sequence.
fn stored(sequences: &[Sequence], width: usize, seed: u32) -> Vec<f32> {
    let mut rows = vec![f32::NAN; PAGES * PAGE_TOKENS * width];
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

/// Of each segment: its queries once, its pages once a unit of heads, and products of scores and
/// values, masks, the largest subtracted, totals, and what earlier pages are multiplied by. The
/// numbers of segments come on top.
fn least(places: &[Place<'_>], shape: KvShape, attention: &Attention, units: u64) -> Least {
    let (dim, heads) = (shape.head_dim as u64, attention.heads as u64);
    let mut least = Least::default();
    let mut row = 0;
    for place in places {
        let mut left = place.start..place.start + place.rows as u32;
        while !left.is_empty() {
            let rows = left.len().min(SIDE - row % SIDE);
            let (first, last) = (left.start, left.start + rows as u32 - 1);
            let seen = |position| attention.mask.visible(place, position);
            let page = PAGE_TOKENS as u32;
            let pages = seen(last).end.div_ceil(page) - seen(first).start / page;
            let (pages, tiles) = (u64::from(pages), dim / SIDE as u64);
            least.read += 2 * 32 * heads * dim + units * pages * 2 * 2 * u64::from(page) * dim;
            least.written += 2 * rows as u64 * heads * dim;
            let products = pages * (4 * (tiles + 1) + 2) + 2 * (pages - 1);
            least.multiply_adds += heads * products * TILE_PRODUCT;
            left.start += rows as u32;
            row += rows;
        }
    }
    least
}

impl Bench {
    /// Behind the sequences runs one more row, of a sequence whose K and V are no numbers: it shares
    /// tiles with them, and only its own result may show it.
    fn attend(&mut self, runs: Runs, heads: Heads, mask: Mask, on: On) -> Result<Outcome> {
        let (heads, kv_heads, head_dim) = heads;
        let (cols, width) = (heads * head_dim, kv_heads * head_dim);
        let (group, kind) = (PageGroup::Full, KvType::Bf16);
        let shape = KvShape { group, pages: PAGES, kv_heads, head_dim, kind };
        let attention = Attention { heads, head_dim, scale: 3.87 / (head_dim as f32).sqrt(), mask };
        let sequences = Sequence::all(&[runs, &[(40, 1)]].concat(), PAGES);
        let places = places(&sequences);
        let rows: usize = runs.iter().map(|(_, rows)| rows).sum();
        // Rows of nobody fill the last tile up.
        let filled = (rows + 1).next_multiple_of(SIDE);
        let q = values(filled * cols, 21);
        let (k, v) = (stored(&sequences, width, 22), stored(&sequences, width, 23));

        let device = self.programs.device();
        let mut store = KvPages::new(device, shape)?;
        store.write(&by_head(&k, head_dim, width), &by_head(&v, head_dim, width))?;
        // Room for one more, which is not in use.
        let mut segments = Segments::new(device, Segments::count(&places) + 1, PAGES)?;
        segments.write(&places, group, mask)?;
        let (a, out) = (self.on_device(&q, cols)?, self.fresh(filled, cols)?);
        let plan = op::attend(&a, &store, &segments, attention.scale, &out, on.cores(self));
        self.programs.run(&plan, true)?;

        let units = u64::from(op::attend_units(&a, &store, &segments, on.cores(self)));
        self.least = least(&places, shape, &attention, units);
        self.least.read += units * (segments.bytes() + u64::from(segments.room()) * 64);

        let mut kv = self.cpu.alloc_kv(shape)?;
        let (k, v) = (self.on_cpu(&k, width)?, self.on_cpu(&v, width)?);
        self.cpu.write_kv(&mut kv, &[Sequence::of_all(PAGES).place()], &k, &v)?;
        let mut want = self.cpu.alloc(filled, cols)?;
        self.cpu.attend(&self.on_cpu(&q, cols)?, &kv, &places, &attention, &mut want)?;
        let got = out.read()?;
        let outcome = Outcome::near(&got[..rows * cols], &self.of_cpu(&want, rows * cols)?);
        Ok(outcome.untouched(&got[(rows + 1) * cols..], CANARY))
    }
}
