//! A CPU that measures the time of its operations by kind, and counts their arithmetic.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use muse_core::Result;
use muse_core::contract::{
    Attention, Backend, BlockCopy, KvShape, RangeQueries, Rope, SampleRow, Sampled, SeqSlice,
    Token, VisionOps, WeightView,
};
use muse_cpu::{Buf, Cpu, Kv, Weight};
use muse_testkit::CpuTimer;

/// Time and arithmetic of a kind of operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Seconds.
    pub seconds: f64,
    /// Multiplications and additions.
    pub operations: f64,
}

/// Measures CPU time for one thread, so that other work on the machine does not count, and wall
/// time for several.
#[derive(Clone, Copy, Debug)]
pub enum Timer {
    /// CPU time of this thread.
    Cpu(CpuTimer),
    /// Wall time.
    Wall(Instant),
}

impl Timer {
    /// Starts the measurement of work that so many threads do.
    pub fn start(threads: usize) -> Self {
        if threads == 1 { Self::Cpu(CpuTimer::start()) } else { Self::Wall(Instant::now()) }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        match self {
            Self::Cpu(timer) => timer.elapsed(),
            Self::Wall(start) => start.elapsed(),
        }
    }
}

/// The CPU with a stopwatch.
pub struct TimedCpu {
    inner: Cpu,
    threads: usize,
    costs: Mutex<BTreeMap<&'static str, Cost>>,
}

impl TimedCpu {
    /// Measures a CPU of so many threads.
    pub fn new(inner: Cpu, threads: usize) -> Self {
        Self { inner, threads, costs: Mutex::default() }
    }

    /// What was spent since the last call, by kind of operation.
    pub fn take_costs(&self) -> BTreeMap<&'static str, Cost> {
        std::mem::take(&mut *self.costs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn time<T>(&self, kind: &'static str, operations: usize, run: impl FnOnce(&Cpu) -> T) -> T {
        let timer = Timer::start(self.threads);
        let result = run(&self.inner);
        let seconds = timer.elapsed().as_secs_f64();
        let mut costs = self.costs.lock().unwrap_or_else(PoisonError::into_inner);
        let cost = costs.entry(kind).or_default();
        cost.seconds += seconds;
        cost.operations += operations as f64;
        result
    }
}

/// Operations that are passed on: name, kind and arguments.
macro_rules! timed {
    ($($name:ident $kind:literal ($($arg:ident: $ty:ty),*);)*) => {
        $(fn $name(&self, $($arg: $ty),*) -> Result<()> {
            self.time($kind, 0, |cpu| cpu.$name($($arg),*))
        })*
    };
}

impl Backend for TimedCpu {
    type Buf = Buf;
    type Weight = Weight;
    type Kv = Kv;

    fn alloc(&self, rows: usize, cols: usize) -> Result<Buf> {
        self.time("memory", 0, |cpu| cpu.alloc(rows, cols))
    }

    fn load(&self, weight: WeightView<'_>) -> Result<Weight> {
        self.inner.load(weight)
    }

    fn free_memory(&self) -> Result<Option<u64>> {
        self.inner.free_memory()
    }

    fn alloc_kv(&self, shape: KvShape) -> Result<Kv> {
        self.time("memory", 0, |cpu| cpu.alloc_kv(shape))
    }

    fn linear(&self, x: &Buf, rows: usize, into: &mut [(&Weight, &mut Buf)]) -> Result<()> {
        let values = into.iter().map(|(weight, _)| weight.shape().0 * weight.shape().1);
        let operations = 2 * rows * values.sum::<usize>();
        self.time("products", operations, |cpu| cpu.linear(x, rows, into))
    }

    timed! {
        write "copies" (buf: &mut Buf, first_row: usize, data: &[f32]);
        read "copies" (buf: &Buf, first_row: usize, out: &mut [f32]);
        copy "copies" (from: &Buf, rows: &[u32], to: &mut Buf, first_row: usize, col: usize);
        copy_blocks "K and V" (kv: &mut Kv, copies: &[BlockCopy]);
        save_block "K and V" (kv: &Kv, block: u32, out: &mut Vec<u8>);
        load_block "K and V" (kv: &mut Kv, block: u32, bytes: &mut &[u8]);
        embed "copies" (table: &Weight, ids: &[Token], out: &mut Buf, first_row: usize);
        rms_norm "norms" (x: &Buf, rows: usize, weight: Option<&Buf>, eps: f32, out: &mut Buf);
        head_norm "norms" (x: &mut Buf, rows: usize, weight: &Buf, eps: f32);
        rope "rope" (x: &mut Buf, slices: &[SeqSlice<'_>], rope: &Rope);
        write_kv "K and V" (kv: &mut Kv, slices: &[SeqSlice<'_>], k: &Buf, v: &Buf);
        attend "attention" (q: &Buf, kv: &Kv, slices: &[SeqSlice<'_>], attention: &Attention,
            out: &mut Buf);
        gate "elementwise" (x: &mut Buf, rows: usize, gate: &Buf);
        silu_mul "elementwise" (gate: &mut Buf, rows: usize, up: &Buf);
        add "elementwise" (x: &mut Buf, rows: usize, y: &Buf);
        scale_softcap "elementwise" (x: &mut Buf, rows: usize, scale: f32, cap: Option<f32>);
        sample "sampling" (logits: &Buf, rows: &[SampleRow<'_>], out: &mut Vec<Sampled>);
    }
}

impl VisionOps for TimedCpu {
    fn attend_ranges(
        &self,
        q: &Buf,
        kv: &Kv,
        parts: &[RangeQueries],
        scale: f32,
        out: &mut Buf,
    ) -> Result<()> {
        let width = kv.shape().kv_heads * kv.shape().head_dim;
        let keys = parts.iter().map(|part| part.rows * part.keys.len());
        let operations = 4 * width * keys.sum::<usize>();
        self.time("attention", operations, |cpu| cpu.attend_ranges(q, kv, parts, scale, out))
    }

    timed! {
        layer_norm "norms" (x: &Buf, rows: usize, weight: &Buf, bias: &Buf, eps: f32,
            out: &mut Buf);
        add_bias "elementwise" (x: &mut Buf, rows: usize, bias: &Buf);
        gelu "gelu" (x: &mut Buf, rows: usize, bias: Option<&Buf>);
        rope_2d "rope" (x: &mut Buf, positions: &[[u32; 2]], rope: &Rope);
        pixel_shuffle "copies" (x: &Buf, rows: &[u32], group: usize, out: &mut Buf);
    }
}
