//! A trace that is recorded once and replayed with other tokens.

use muse_core::Result;
use muse_core::contract::{Attention, Backend, KvGroup, KvShape, KvType, Mask, Rope};
use muse_core::quant::tile::{SIDE, TileFormat};
use muse_cpu::Cpu;
use muse_tt::op::{self, RopeTable};
use muse_tt::{IndexBuffer, KvCache, Matrix, Plan, Segments, Trace, positions, slot_mapping};

use crate::lane::Requirement;

use super::sequence::Sequence;
use super::{Case, CoreSet, Harness, Outcome, case, values};

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DIM: usize = 64;
const BLOCKS: usize = 4;
const POSITIONS: usize = 256;
const SCALE: f32 = 0.484;
const GROUP: KvGroup = KvGroup::Window;
const MASK: Mask = Mask::Causal { window: Some(60) };
/// `(first position, tokens)` of the steps of a sequence. The last one crosses the end of a KV
/// block.
const STEPS: [(u32, usize); 3] = [(0, 16), (16, 32), (48, 30)];

pub(super) fn cases(core_set: CoreSet) -> impl Iterator<Item = Case> {
    let run = move |harness: &mut Harness| harness.trace(core_set);
    [case("trace", SIDE, HEADS * DIM, core_set, false, Requirement::Traces, run).without_cost()]
        .into_iter()
}

/// Rope, the write of K and V, and attention, with fixed input buffers.
struct Step {
    q: Matrix,
    k: Matrix,
    v: Matrix,
    out: Matrix,
    positions: IndexBuffer,
    slots: IndexBuffer,
    segments: Segments,
    /// Kept alive because the plans write to it.
    _partials: Matrix,
    plans: Vec<Plan>,
}

impl Step {
    fn new(
        harness: &Harness,
        cache: &KvCache,
        table: &RopeTable,
        core_set: CoreSet,
    ) -> Result<Self> {
        let device = harness.programs.device();
        let matrix = |heads| Matrix::new(device, TileFormat::Bf16, SIDE, heads * DIM);
        let (q, k, v, out) = (matrix(HEADS)?, matrix(KV_HEADS)?, matrix(KV_HEADS)?, matrix(HEADS)?);
        let (positions, slots) =
            (IndexBuffer::with_pages(device, 1, SIDE)?, IndexBuffer::with_pages(device, 1, SIDE)?);
        let segments = Segments::new(device, BLOCKS, 1)?;
        let partials = op::attend_partials(&q, cache, &segments)?;
        let cores = core_set.cores(harness);
        let plans = [
            op::rope(&q, &positions, table, &q, cores),
            op::write_kv(&k, &v, &slots, cache, cores),
        ];
        let attend = op::attend(&q, cache, &segments, &partials, SCALE, &out, cores);
        let plans = plans.into_iter().chain(attend).collect();
        Ok(Self { q, k, v, out, positions, slots, segments, _partials: partials, plans })
    }

    fn refresh(&mut self, inputs: &[Vec<f32>; 3], sequence: &Sequence) -> Result<()> {
        let slices = [sequence.slice()];
        self.q.write(&inputs[0])?;
        self.k.write(&inputs[1])?;
        self.v.write(&inputs[2])?;
        self.positions.write(&positions(&slices))?;
        self.slots.write(&slot_mapping(&slices, GROUP))?;
        self.segments.write(&slices, GROUP, MASK)
    }
}

impl Harness {
    /// The first step runs while it is recorded, the others are replays of the trace.
    fn trace(&mut self, core_set: CoreSet) -> Result<Outcome> {
        let shape = KvShape {
            group: GROUP,
            blocks: BLOCKS,
            kv_heads: KV_HEADS,
            head_dim: DIM,
            kind: KvType::Bf16,
        };
        let rope = Rope { head_dim: DIM, theta: 500_000.0 };
        let cache = KvCache::new(self.programs.device(), shape)?;
        let table = RopeTable::new(self.programs.device(), &rope, POSITIONS)?;
        let mut step = Step::new(self, &cache, &table, core_set)?;
        let mut kv = self.cpu.alloc_kv(shape)?;
        let (mut actual, mut reference) = (Vec::new(), Vec::new());
        let mut trace: Option<Trace> = None;
        for (index, run) in STEPS.into_iter().enumerate() {
            // The KV blocks of the sequence are in the same order in every step.
            let sequence = &Sequence::all(&[run], BLOCKS)[0];
            let seed = 31 + 3 * index as u32;
            let widths = [HEADS, KV_HEADS, KV_HEADS].map(|heads| SIDE * heads * DIM);
            let inputs = [0, 1, 2].map(|i| values(widths[i], seed + i as u32));
            step.refresh(&inputs, sequence)?;
            match &trace {
                Some(trace) => trace.replay(true)?,
                None => trace = Some(self.programs.record(&step.plans)?),
            }
            let rows = run.1 * HEADS * DIM;
            actual.extend_from_slice(&step.out.read()?[..rows]);
            reference.extend(self.reference_step(&mut kv, &inputs, sequence, &rope)?.drain(..rows));
        }
        // Rotated queries, softmax weights, and results are rounded.
        Ok(Outcome::near(&actual, &reference).rounded(3))
    }

    fn reference_step(
        &self,
        kv: &mut <Cpu as Backend>::Kv,
        inputs: &[Vec<f32>; 3],
        sequence: &Sequence,
        rope: &Rope,
    ) -> Result<Vec<f32>> {
        let slices = [sequence.slice()];
        let attention = Attention { heads: HEADS, head_dim: DIM, scale: SCALE, mask: MASK };
        let mut q = self.on_cpu(&inputs[0], HEADS * DIM)?;
        let [k, v] = [1, 2].map(|i| self.on_cpu(&inputs[i], KV_HEADS * DIM));
        let mut out = self.cpu.alloc(SIDE, HEADS * DIM)?;
        self.cpu.rope(&mut q, &slices, rope)?;
        self.cpu.write_kv(kv, &slices, &k?, &v?)?;
        self.cpu.attend(&q, kv, &slices, &attention, &mut out)?;
        self.of_cpu(&out, SIDE * HEADS * DIM)
    }
}
