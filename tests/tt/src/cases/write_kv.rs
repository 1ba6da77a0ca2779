//! Writing K and V of new tokens into the KV cache.

use muse_core::Result;
use muse_core::contract::{Backend, KV_BLOCK_SIZE, KvGroup, KvShape, KvType};
use muse_tt::{IndexBuffer, KvCache, op, slot_mapping};

use crate::lane::Requirement;

use super::sequence::{Sequence, slices};
use super::{CANARY, Case, CoreSet, Harness, Outcome, case, tiles, values};

const BLOCKS: usize = 24;

/// Tokens of several sequences, across the ends of KV blocks, and half a KV block, which is written
/// as a tile.
pub(super) fn cases(core_set: CoreSet) -> impl Iterator<Item = Case> {
    let packed: &[(u32, usize)] = &[(50, 20), (0, 1), (127, 2)];
    let chunk: &[(u32, usize)] = &[(32, 64), (5, 3)];
    // A prefill chunk of the published model, which fills all cores, and the tokens of a verify
    // step.
    let many: &[(u32, usize)] = &[(64, 512), (700, 16)];
    let shapes = [(packed, 32), (packed, 128), (chunk, 64), (many, 128)];
    shapes.into_iter().map(move |(runs, dim)| {
        let tokens: usize = runs.iter().map(|(_, tokens)| tokens).sum();
        let quick = dim == 32 && matches!(core_set, CoreSet::One);
        let requirement = if tokens > 100 { Requirement::Speed } else { Requirement::Basic };
        let run = move |harness: &mut Harness| harness.write_kv(runs, dim, core_set);
        case(&format!("write_kv/{dim}"), tokens, 2 * dim, core_set, quick, requirement, run)
    })
}

impl Harness {
    /// Exact, and nothing else of the cache changes.
    fn write_kv(
        &mut self,
        runs: &[(u32, usize)],
        dim: usize,
        core_set: CoreSet,
    ) -> Result<Outcome> {
        let (group, kind) = (KvGroup::Window, KvType::Bf16);
        let shape = KvShape { group, blocks: BLOCKS, kv_heads: 2, head_dim: dim, kind };
        let cols = shape.kv_heads * dim;
        let sequences = Sequence::all(runs, BLOCKS);
        let slices = slices(&sequences);
        // The padding rows of the last tile have values too.
        let rows = slot_mapping(&slices, group).len();
        let (k, v) = (values(rows * cols, 13), values(rows * cols, 14));
        let device = self.programs.device();
        let mut cache = KvCache::new(device, shape)?;
        let canaries = vec![CANARY; BLOCKS * KV_BLOCK_SIZE * cols];
        cache.write(&canaries, &canaries)?;
        let at = IndexBuffer::from_values(device, &slot_mapping(&slices, group))?;
        let (a, b) = (self.on_device(&k, cols)?, self.on_device(&v, cols)?);
        let plan = op::write_kv(&a, &b, &at, &cache, core_set.cores(self));
        self.programs.run(&plan, true)?;
        let tokens: usize = runs.iter().map(|(_, tokens)| tokens).sum();
        self.expected.read = a.bytes() + b.bytes() + at.bytes();
        self.expected.written = 2 * 2 * (tokens * cols) as u64;
        self.expect_indices(at.bytes(), tiles(rows, cols), core_set);
        let (actual_k, actual_v) = cache.read()?;
        let mut kv = self.cpu.alloc_kv(shape)?;
        let canaries = self.on_cpu(&canaries, cols)?;
        self.cpu.write_kv(&mut kv, &[Sequence::of_all(BLOCKS).slice()], &canaries, &canaries)?;
        self.cpu.write_kv(&mut kv, &slices, &self.on_cpu(&k, cols)?, &self.on_cpu(&v, cols)?)?;
        let (mut reference, mut actual) = (Vec::new(), Vec::new());
        let block = KV_BLOCK_SIZE * cols;
        for (index, (k, v)) in actual_k.chunks(block).zip(actual_v.chunks(block)).enumerate() {
            self.cpu.save_block(&kv, index as u32, &mut reference)?;
            actual.extend([k, v].concat());
        }
        let reference: Vec<f32> = reference
            .as_chunks()
            .0
            .iter()
            .map(|raw| half::bf16::from_le_bytes(*raw).to_f32())
            .collect();
        Ok(Outcome::exact(&actual, &reference))
    }
}
