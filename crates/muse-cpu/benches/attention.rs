//! Times attention over long contexts in the geometry of the 30B model, and compares it with the
//! shortest time that the machine allows: K/V bytes over memory bandwidth, or operations over the
//! peak rate of their instructions, whichever is longer. `--smoke` only checks that it runs.

use std::time::{Duration, Instant};

use muse_core::contract::{
    Attention, Backend, BlockTable, KV_BLOCK_SIZE, KvGroup, KvShape, KvType, Mask, SeqSlice,
};
use muse_cpu::{Cpu, CpuOptions, Isa, Peaks};

const HEADS: usize = 32;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 128;
const KV_TYPES: [KvType; 4] = [KvType::F32, KvType::Bf16, KvType::F16, KvType::Q8_0];

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke");
    let (time, depths) = if smoke { (0, [128, 192]) } else { (400, [8 << 10, 32 << 10]) };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for threads in [1, threads] {
        let peaks = Peaks::measure(threads, Duration::from_millis(time)).expect("memory");
        for kind in KV_TYPES {
            for depth in depths {
                for rows in [1, 16, 64] {
                    let best = (0..5).map(|_| seconds(kind, depth, rows, threads, time / 8));
                    report(kind, depth, rows, threads, best.fold(f64::INFINITY, f64::min), &peaks);
                }
            }
        }
    }
}

fn report(kind: KvType, depth: usize, rows: usize, threads: usize, seconds: f64, peaks: &Peaks) {
    let bytes = (2 * depth * KV_HEADS * kind.bytes_for(HEAD_DIM)) as f64;
    let operations = (4 * depth * rows * HEADS * HEAD_DIM) as f64;
    let peak = match kind {
        KvType::Bf16 => peaks.bf16.unwrap_or(peaks.f32),
        _ => peaks.f32,
    };
    let shortest = (bytes / peaks.read).max(operations / peak);
    println!(
        "{:<4} {depth:>6} deep, {rows:>2} rows, {threads} threads {:>9.1} µs {:>7.1} Gop/s, \
         {:.2} times the shortest time",
        format!("{kind:?}"),
        seconds * 1e6,
        operations / seconds / 1e9,
        seconds / shortest
    );
}

/// Seconds per call: the shortest of several, since other work on the machine can only add to it.
fn seconds(kind: KvType, depth: usize, rows: usize, threads: usize, time: u64) -> f64 {
    let cpu = Cpu::with_isa(CpuOptions { threads: Some(threads) }, Isa::best()).expect("threads");
    let blocks: Vec<u32> = (0..depth.div_ceil(KV_BLOCK_SIZE) as u32).collect();
    let shape = KvShape {
        group: KvGroup::Full,
        blocks: blocks.len(),
        kv_heads: KV_HEADS,
        head_dim: HEAD_DIM,
        kind,
    };
    let mut kv = cpu.alloc_kv(shape).expect("memory");
    let table = BlockTable { full: &blocks, window: &[], window_base: 0 };
    fill(&cpu, &mut kv, table, depth);
    let (mut q, mut out) = (alloc(&cpu, rows), alloc(&cpu, rows));
    cpu.write(&mut q, 0, &values(rows * HEADS * HEAD_DIM)).expect("rows");
    let slices = [SeqSlice { start: (depth - rows) as u32, len: rows, blocks: table }];
    let mask = Mask::Causal { window: None };
    let attention = Attention { heads: HEADS, head_dim: HEAD_DIM, scale: 0.1, mask };
    let (started, mut best) = (Instant::now(), f64::INFINITY);
    loop {
        let round = Instant::now();
        cpu.attend(&q, &kv, &slices, &attention, &mut out).expect("attend");
        best = best.min(round.elapsed().as_secs_f64());
        if started.elapsed() >= Duration::from_millis(time) {
            return best;
        }
    }
}

fn alloc(cpu: &Cpu, rows: usize) -> <Cpu as Backend>::Buf {
    cpu.alloc(rows, HEADS * HEAD_DIM).expect("memory")
}

/// Writes every key and value, since memory pages that were never written share one physical page.
fn fill(cpu: &Cpu, kv: &mut <Cpu as Backend>::Kv, blocks: BlockTable<'_>, depth: usize) {
    let width = KV_HEADS * HEAD_DIM;
    let mut rows = cpu.alloc(KV_BLOCK_SIZE, width).expect("memory");
    cpu.write(&mut rows, 0, &values(KV_BLOCK_SIZE * width)).expect("rows");
    for start in (0..depth as u32).step_by(KV_BLOCK_SIZE) {
        let rows_here = KV_BLOCK_SIZE.min(depth - start as usize);
        let slice = SeqSlice { start, len: rows_here, blocks };
        cpu.write_kv(kv, &[slice], &rows, &rows).expect("KV blocks");
    }
}

/// Small values of both signs.
fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 7919 % 1009) as f32 / 504.5 - 1.0).collect()
}
