//! Times every kernel in every instruction set of this CPU. `--smoke` only checks that it runs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use muse_core::contract::{
    Attention, Backend, BlockTable, KvGroup, KvShape, KvType, Mask, Rope, SeqSlice, WeightView,
};
use muse_core::quant::Format;
use muse_cpu::kernels::{elementwise, gemm, rms_norm, rope, softmax, weighted_v_sum};
use muse_cpu::{Cpu, CpuOptions, Isa, Layout};

fn main() {
    let smoke = std::env::args().any(|argument| argument == "--smoke");
    let bench = Bench { time: Duration::from_millis(if smoke { 0 } else { 200 }) };
    println!("{:<34} {:>8} {:>12} {:>14}", "kernel", "isa", "µs per call", "throughput");
    stored_rows(&bench);
    plain_loops(&bench);
    println!("{:<34} {:>8} {:>12} {:>14}", "decode step", "isa", "µs", "tokens/s");
    for format in [Format::Bf16, Format::Q8_0] {
        for &isa in Isa::available() {
            decode(&bench, isa, format, 1);
        }
        decode(&bench, Isa::best(), format, 2);
    }
}

fn decode(bench: &Bench, isa: Isa, format: Format, threads: usize) {
    let mut step = NanoStep::new(isa, format, threads);
    let mut position = 0;
    let seconds = bench.seconds(|| {
        step.run(position % 200).expect("a step");
        position += 1;
    });
    let name = format!("muse-nano shapes, {format}, {threads} threads");
    println!("{name:<34} {isa:>8} {:>12.1} {:>14.0}", seconds * 1e6, 1.0 / seconds);
}

struct Bench {
    time: Duration,
}

impl Bench {
    /// Seconds per call: the shortest of several rounds, since other work on the machine can only
    /// add to it.
    fn seconds(&self, mut call: impl FnMut()) -> f64 {
        let (started, mut best, mut calls) = (Instant::now(), f64::INFINITY, 1);
        loop {
            let round = Instant::now();
            (0..calls).for_each(|_| call());
            let seconds = round.elapsed().as_secs_f64();
            best = best.min(seconds / f64::from(calls));
            if started.elapsed() >= self.time {
                return best;
            }
            if seconds < 1e-3 {
                calls *= 2;
            }
        }
    }

    fn report(&self, name: &str, isa: &str, work: f64, unit: &str, call: impl FnMut()) {
        let seconds = self.seconds(call);
        let rate = work / seconds * 1e-9;
        println!("{name:<34} {isa:>8} {:>12.2} {rate:>8.1} {unit}", seconds * 1e6);
    }
}

/// Small values of both signs.
fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 7919 % 1009) as f32 / 504.5 - 1.0).collect()
}

fn encoded(layout: Layout, n: usize) -> Vec<u8> {
    // Bytes of 0x3c are numbers of moderate magnitude in every layout.
    vec![0x3c; layout.format().bytes_for(n)]
}

fn stored_rows(bench: &Bench) {
    let (k, cols) = (2048, 64);
    for layout in Layout::ALL {
        let w = encoded(layout, k * cols);
        for rows in [1, 4, 16] {
            let (x, mut out) = (values(rows * k), vec![0.0; rows * cols]);
            for (isa, kernel) in gemm::variants(layout) {
                let work = 2.0 * (rows * cols * k) as f64;
                bench.report(
                    &format!("gemm {layout:?} {rows}x{k}x{cols}"),
                    isa,
                    work,
                    "GFLOP/s",
                    || {
                        kernel(black_box(&x), black_box(&w), k, black_box(&mut out));
                    },
                );
            }
        }
        let (rows, n, width) = (16, 64, 128);
        let (p, v, rescale) = (values(rows * n), encoded(layout, n * width), vec![0.5; rows]);
        let mut out = vec![0.0; rows * width];
        for (isa, kernel) in weighted_v_sum::variants(layout) {
            let work = 2.0 * (rows * n * width) as f64;
            bench.report(
                &format!("weighted_v_sum {layout:?} {rows}x{n}x{width}"),
                isa,
                work,
                "GFLOP/s",
                || {
                    kernel(black_box(&p), black_box(&v), n, &rescale, black_box(&mut out));
                },
            );
        }
    }
}

fn plain_loops(bench: &Bench) {
    let n = 4096;
    let (mut x, y) = (values(n), values(n));
    let size = n as f64;
    let binary: [(&str, Vec<_>); 3] = [
        ("sigmoid_mul", elementwise::sigmoid_mul::variants().collect()),
        ("silu_mul", elementwise::silu_mul::variants().collect()),
        ("add", elementwise::add::variants().collect()),
    ];
    for (name, variants) in binary {
        for (isa, kernel) in variants {
            x.copy_from_slice(&y);
            bench.report(name, isa, size, "Gvalue/s", || kernel(black_box(&mut x), black_box(&y)));
        }
    }
    for (isa, kernel) in elementwise::softcap::variants() {
        bench.report("softcap", isa, size, "Gvalue/s", || kernel(black_box(&mut x), 1.0, 20.0));
    }
    for (isa, kernel) in rms_norm::variants() {
        bench.report("rms_norm", isa, size, "Gvalue/s", || kernel(black_box(&mut x), &y, 1e-5));
    }
    let frequencies = values(64);
    for (isa, kernel) in rope::variants() {
        bench.report("rope, heads of 128", isa, size, "Gvalue/s", || {
            kernel(black_box(&mut x), black_box(777.0), &frequencies);
        });
    }
    for (isa, kernel) in softmax::variants() {
        let mut scores = values(64);
        bench.report("online softmax of a KV block", isa, 64.0, "Gvalue/s", || {
            let mut state = softmax::SoftmaxState::EMPTY;
            black_box(kernel(black_box(&mut scores), 1.0, &mut state));
        });
    }
}

type Buf = <Cpu as Backend>::Buf;
type Weight = <Cpu as Backend>::Weight;

/// The operations of a decode step in the shapes of muse-nano, so small that the overhead of
/// operations shows.
struct NanoStep {
    cpu: Cpu,
    layers: Vec<Layer>,
    lm_head: Weight,
    norm: Buf,
    head_norm: Buf,
    bufs: Bufs,
}

struct Layer {
    /// q, k, v, gate, output; gate, up and down of the feed-forward.
    weights: [Weight; 8],
    kv: <Cpu as Backend>::Kv,
}

const HIDDEN: usize = 256;
const FFN: usize = 512;
const KV_WIDTH: usize = 128;
const HEAD_DIM: usize = 64;
const VOCAB: usize = 1024;
const NORM_EPS: f32 = 1e-5;

impl NanoStep {
    fn new(isa: Isa, format: Format, threads: usize) -> Self {
        let cpu = Cpu::with_isa(CpuOptions { threads: Some(threads) }, isa).expect("threads");
        let load = |rows: usize, cols: usize| {
            let bytes = vec![0x3c; format.bytes_for(rows * cols)].into();
            cpu.load(WeightView { name: "bench", format, rows, cols, bytes }).expect("memory")
        };
        let layer = |_| {
            let shape = KvShape {
                group: KvGroup::Full,
                blocks: 4,
                kv_heads: KV_WIDTH / HEAD_DIM,
                head_dim: HEAD_DIM,
                kind: KvType::Bf16,
            };
            Layer {
                weights: [
                    load(HIDDEN, HIDDEN),
                    load(KV_WIDTH, HIDDEN),
                    load(KV_WIDTH, HIDDEN),
                    load(HIDDEN, HIDDEN),
                    load(HIDDEN, HIDDEN),
                    load(FFN, HIDDEN),
                    load(FFN, HIDDEN),
                    load(HIDDEN, FFN),
                ],
                kv: cpu.alloc_kv(shape).expect("memory"),
            }
        };
        let layers = (0..8).map(layer).collect();
        let (lm_head, norm) = (load(VOCAB, HIDDEN), cpu.alloc(1, HIDDEN).expect("memory"));
        let head_norm = cpu.alloc(1, HEAD_DIM).expect("memory");
        let buf = |cols| cpu.alloc(1, cols).expect("memory");
        let (x, h, o, q, gate) = (buf(HIDDEN), buf(HIDDEN), buf(HIDDEN), buf(HIDDEN), buf(HIDDEN));
        let (k, v, logits) = (buf(KV_WIDTH), buf(KV_WIDTH), buf(VOCAB));
        let bufs = Bufs { x, h, o, q, k, v, gate, ffn: buf(FFN), up: buf(FFN), logits };
        Self { lm_head, layers, norm, head_norm, bufs, cpu }
    }

    fn run(&mut self, position: u32) -> muse_core::Result<()> {
        let Self { cpu, layers, lm_head, norm, head_norm, bufs } = self;
        let Bufs { x, h, o, q, k, v, gate, ffn, up, logits } = bufs;
        let blocks = BlockTable { full: &[0, 1, 2, 3], window: &[], window_base: 0 };
        let slices = [SeqSlice { start: position, len: 1, blocks }];
        let rope = Rope { head_dim: HEAD_DIM, theta: 500_000.0 };
        for (i, Layer { weights, kv }) in layers.iter_mut().enumerate() {
            let [wq, wk, wv, wg, wo, w_gate, w_up, w_down] = &*weights;
            let window = (i % 4 != 3).then_some(64);
            let mask = Mask::Causal { window };
            let attention = Attention { heads: 4, head_dim: HEAD_DIM, scale: 0.125, mask };
            cpu.rms_norm(x, 1, Some(norm), NORM_EPS, h)?;
            cpu.linear(h, 1, &mut [(wq, q), (wk, k), (wv, v), (wg, gate)])?;
            cpu.head_norm(q, 1, head_norm, NORM_EPS)?;
            cpu.head_norm(k, 1, head_norm, NORM_EPS)?;
            if window.is_some() {
                cpu.rope(q, &slices, &rope)?;
                cpu.rope(k, &slices, &rope)?;
            }
            cpu.write_kv(kv, &slices, k, v)?;
            cpu.attend(q, kv, &slices, &attention, o)?;
            cpu.gate(o, 1, gate)?;
            cpu.linear(o, 1, &mut [(wo, h)])?;
            cpu.rms_norm(h, 1, Some(norm), NORM_EPS, o)?;
            cpu.add(x, 1, o)?;
            cpu.rms_norm(x, 1, Some(norm), NORM_EPS, h)?;
            cpu.linear(h, 1, &mut [(w_gate, ffn), (w_up, up)])?;
            cpu.silu_mul(ffn, 1, up)?;
            cpu.linear(ffn, 1, &mut [(w_down, h)])?;
            cpu.rms_norm(h, 1, Some(norm), NORM_EPS, o)?;
            cpu.add(x, 1, o)?;
        }
        cpu.rms_norm(x, 1, Some(norm), NORM_EPS, h)?;
        cpu.linear(h, 1, &mut [(lm_head, logits)])?;
        cpu.scale_softcap(logits, 1, 0.5, Some(20.0))
    }
}

/// Activations of one token.
struct Bufs {
    x: Buf,
    h: Buf,
    o: Buf,
    q: Buf,
    k: Buf,
    v: Buf,
    gate: Buf,
    ffn: Buf,
    up: Buf,
    logits: Buf,
}
