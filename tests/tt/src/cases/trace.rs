//! Programs that are recorded once and run again for other rows.

use muse_core::Result;
use muse_core::contract::{Attention, Backend, KvGroup, KvShape, KvType, Mask, Rope};
use muse_core::quant::tile::{SIDE, TileFormat};
use muse_cpu::Cpu;
use muse_tt::op::{self, Rotations};
use muse_tt::{Ids, KvPages, Matrix, Plan, Segments, Trace, positions, slots};

use crate::lane::Needs;

use super::sequence::Sequence;
use super::{Bench, Case, On, Outcome, case, values};

const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const DIM: usize = 64;
const PAGES: usize = 4;
const POSITIONS: usize = 256;
const SCALE: f32 = 0.484;
const GROUP: KvGroup = KvGroup::Window;
const MASK: Mask = Mask::Causal { window: Some(60) };
/// Two blocks of a sequence, the second one over the end of a page, and then a shorter one.
const STEPS: [(u32, usize); 3] = [(0, 16), (16, 32), (48, 30)];

pub(super) fn cases(on: On) -> impl Iterator<Item = Case> {
    let run = move |bench: &mut Bench| bench.trace(on);
    [case("trace", SIDE, HEADS * DIM, on, false, Needs::Traces, run).uncounted()].into_iter()
}

/// Rotation, storing and attention, with inputs that stay where they are.
struct Step {
    q: Matrix,
    k: Matrix,
    v: Matrix,
    out: Matrix,
    positions: Ids,
    slots: Ids,
    segments: Segments,
    /// Lives as long as the plans that write to it.
    _partials: Matrix,
    plans: Vec<Plan>,
}

impl Step {
    fn new(bench: &Bench, store: &KvPages, rotations: &Rotations, on: On) -> Result<Self> {
        let device = bench.programs.device();
        let matrix = |heads| Matrix::new(device, TileFormat::Bf16, SIDE, heads * DIM);
        let (q, k, v, out) = (matrix(HEADS)?, matrix(KV_HEADS)?, matrix(KV_HEADS)?, matrix(HEADS)?);
        let (positions, slots) = (Ids::in_pages(device, 1, SIDE)?, Ids::in_pages(device, 1, SIDE)?);
        let segments = Segments::new(device, PAGES, 1)?;
        let partials = op::attend_partials(&q, store, &segments)?;
        let cores = on.cores(bench);
        let plans = [
            op::rope(&q, &positions, rotations, &q, cores),
            op::write_kv(&k, &v, &slots, store, cores),
        ];
        let attend = op::attend(&q, store, &segments, &partials, SCALE, &out, cores);
        let plans = plans.into_iter().chain(attend).collect();
        Ok(Self { q, k, v, out, positions, slots, segments, _partials: partials, plans })
    }

    fn refresh(&mut self, inputs: &[Vec<f32>; 3], sequence: &Sequence) -> Result<()> {
        let slices = [sequence.slice()];
        self.q.write(&inputs[0])?;
        self.k.write(&inputs[1])?;
        self.v.write(&inputs[2])?;
        self.positions.write(&positions(&slices))?;
        self.slots.write(&slots(&slices, GROUP))?;
        self.segments.write(&slices, GROUP, MASK)
    }
}

impl Bench {
    /// The first step runs as it is, the others are replayed from what was recorded.
    fn trace(&mut self, on: On) -> Result<Outcome> {
        let shape = KvShape {
            group: GROUP,
            blocks: PAGES,
            kv_heads: KV_HEADS,
            head_dim: DIM,
            kind: KvType::Bf16,
        };
        let rope = Rope { head_dim: DIM, theta: 500_000.0 };
        let store = KvPages::new(self.programs.device(), shape)?;
        let rotations = Rotations::new(self.programs.device(), &rope, POSITIONS)?;
        let mut step = Step::new(self, &store, &rotations, on)?;
        let mut kv = self.cpu.alloc_kv(shape)?;
        let (mut got, mut want) = (Vec::new(), Vec::new());
        let mut trace: Option<Trace> = None;
        for (index, run) in STEPS.into_iter().enumerate() {
            // Every step's sequence has its pages in the same order.
            let sequence = &Sequence::all(&[run], PAGES)[0];
            let seed = 31 + 3 * index as u32;
            let widths = [HEADS, KV_HEADS, KV_HEADS].map(|heads| SIDE * heads * DIM);
            let inputs = [0, 1, 2].map(|i| values(widths[i], seed + i as u32));
            step.refresh(&inputs, sequence)?;
            match &trace {
                Some(trace) => trace.replay(true)?,
                None => trace = Some(self.programs.record(&step.plans)?),
            }
            let rows = run.1 * HEADS * DIM;
            got.extend_from_slice(&step.out.read()?[..rows]);
            want.extend(self.stepped(&mut kv, &inputs, sequence, &rope)?.drain(..rows));
        }
        // Rotated queries, weights of keys, results.
        Ok(Outcome::near(&got, &want).rounded(3))
    }

    fn stepped(
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
