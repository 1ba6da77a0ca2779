//! The paged store of K and V.

use muse_core::Result;
use muse_core::contract::{Backend, KV_BLOCK_SIZE, KvGroup, KvShape, KvType};
use muse_tt::{Ids, KvPages, op, slots};

use crate::lane::Needs;

use super::sequence::{Sequence, slices};
use super::{Bench, CANARY, Case, On, Outcome, case, tiles, values};

const PAGES: usize = 24;

/// Rows of several sequences, across ends of pages, and half a page that is written whole.
pub(super) fn cases(on: On) -> impl Iterator<Item = Case> {
    let packed: &[(u32, usize)] = &[(50, 20), (0, 1), (127, 2)];
    let chunk: &[(u32, usize)] = &[(32, 64), (5, 3)];
    // A chunk of the published model that fills all cores, and the block of a verify behind it.
    let many: &[(u32, usize)] = &[(64, 512), (700, 16)];
    let shapes = [(packed, 32), (packed, 128), (chunk, 64), (many, 128)];
    shapes.into_iter().map(move |(runs, dim)| {
        let rows: usize = runs.iter().map(|(_, rows)| rows).sum();
        let quick = dim == 32 && matches!(on, On::One);
        let needs = if rows > 100 { Needs::Speed } else { Needs::Little };
        let run = move |bench: &mut Bench| bench.write_kv(runs, dim, on);
        case(&format!("write_kv/{dim}"), rows, 2 * dim, on, quick, needs, run)
    })
}

impl Bench {
    /// Exact, and nothing else is touched.
    fn write_kv(&mut self, runs: &[(u32, usize)], dim: usize, on: On) -> Result<Outcome> {
        let (group, kind) = (KvGroup::Window, KvType::Bf16);
        let shape = KvShape { group, blocks: PAGES, kv_heads: 2, head_dim: dim, kind };
        let cols = shape.kv_heads * dim;
        let sequences = Sequence::all(runs, PAGES);
        let slices = slices(&sequences);
        // Rows of nobody fill the last tile up, and hold values too.
        let rows = slots(&slices, group).len();
        let (k, v) = (values(rows * cols, 13), values(rows * cols, 14));
        let device = self.programs.device();
        let mut store = KvPages::new(device, shape)?;
        let canaries = vec![CANARY; PAGES * KV_BLOCK_SIZE * cols];
        store.write(&canaries, &canaries)?;
        let at = Ids::of(device, &slots(&slices, group))?;
        let (a, b) = (self.on_device(&k, cols)?, self.on_device(&v, cols)?);
        let plan = op::write_kv(&a, &b, &at, &store, on.cores(self));
        self.programs.run(&plan, true)?;
        let real: usize = runs.iter().map(|(_, rows)| rows).sum();
        self.due.read = a.bytes() + b.bytes() + at.bytes();
        self.due.written = 2 * 2 * (real * cols) as u64;
        self.numbers_due(at.bytes(), tiles(rows, cols), on);
        let (got_k, got_v) = store.read()?;
        let mut kv = self.cpu.alloc_kv(shape)?;
        let canaries = self.on_cpu(&canaries, cols)?;
        self.cpu.write_kv(&mut kv, &[Sequence::of_all(PAGES).slice()], &canaries, &canaries)?;
        self.cpu.write_kv(&mut kv, &slices, &self.on_cpu(&k, cols)?, &self.on_cpu(&v, cols)?)?;
        let (mut want, mut got) = (Vec::new(), Vec::new());
        let page = KV_BLOCK_SIZE * cols;
        for (number, (k, v)) in got_k.chunks(page).zip(got_v.chunks(page)).enumerate() {
            self.cpu.save_block(&kv, number as u32, &mut want)?;
            got.extend([k, v].concat());
        }
        let want: Vec<f32> =
            want.as_chunks().0.iter().map(|raw| half::bf16::from_le_bytes(*raw).to_f32()).collect();
        Ok(Outcome::exact(&got, &want))
    }
}
