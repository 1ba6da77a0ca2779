//! Times matrix products of every format as a model runs them, and prints which share of the
//! machine's peak rates they reach.
//!
//! Arguments: names of formats restrict the run to them, `--threads N` sets the number of threads,
//! `--rows N` the batch size, `--shape NxK` the shape of weights; `--smoke` only checks that it
//! runs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use muse_core::contract::{Backend, WeightView};
use muse_core::quant::Format;
use muse_cpu::{Cpu, CpuOptions, Peaks, Weight};

/// The width of the 30B model, and weight rows of a product.
const K: usize = 6656;
const N: usize = 2048;
const ROWS: [usize; 7] = [1, 2, 4, 8, 16, 32, 512];
/// Bytes of weights that products use in turn, so that a product with one row reads them from
/// memory.
const WEIGHTS: usize = 192 << 20;

struct Options {
    smoke: bool,
    threads: usize,
    rows: Vec<usize>,
    shape: (usize, usize),
    formats: Vec<Format>,
}

fn options() -> Options {
    let (rows, formats) = (ROWS.to_vec(), Vec::new());
    let mut options = Options { smoke: false, threads: 2, rows, shape: (N, K), formats };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--smoke" => options.smoke = true,
            "--threads" => options.threads = number(&mut arguments),
            "--rows" => options.rows = vec![number(&mut arguments)],
            "--shape" => {
                let shape = arguments.next().and_then(|shape| {
                    let (n, k) = shape.split_once('x')?;
                    Some((n.parse().ok()?, k.parse().ok()?))
                });
                options.shape = shape.expect("--shape needs NxK");
            }
            name => options.formats.extend(Format::ALL.iter().filter(|f| f.name() == name)),
        }
    }
    if options.formats.is_empty() {
        options.formats.extend(Format::ALL);
    }
    options
}

fn number(arguments: &mut impl Iterator<Item = String>) -> usize {
    arguments.next().and_then(|n| n.parse().ok()).expect("a number after the option")
}

fn main() {
    let Options { smoke, threads, rows, shape, formats } = options();
    let time = Duration::from_millis(if smoke { 0 } else { 300 });
    let shape = if smoke { (64, 512) } else { shape };
    let peaks = Peaks::measure(threads, time).expect("memory");
    let giga = |rate: Option<f64>| rate.map_or("none".into(), |rate| format!("{:.0}", rate * 1e-9));
    println!("{threads} threads: memory {:.1} GB/s", peaks.read * 1e-9);
    println!("int8 {} bf16 {} GOP/s", giga(peaks.int8), giga(peaks.bf16));
    println!("f32 {} GFLOP/s", giga(Some(peaks.f32)));
    println!("{:<8} {:>5} {:>10} {:>8} {:>8} shares", "format", "rows", "µs", "GB/s", "GOP/s");
    for format in formats {
        run(format, threads, &rows, shape, time, &peaks);
    }
}

/// Measures CPU time for one thread, so that other work on the machine does not count, and wall
/// time for several.
enum Clock {
    Cpu(f64),
    Wall(Instant),
}

impl Clock {
    fn now(threads: usize) -> Self {
        if threads == 1 { Self::Cpu(cpu_time()) } else { Self::Wall(Instant::now()) }
    }

    fn elapsed(&self) -> f64 {
        match self {
            Self::Cpu(start) => cpu_time() - start,
            Self::Wall(start) => start.elapsed().as_secs_f64(),
        }
    }
}

/// CPU time of this thread in seconds.
fn cpu_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time`, a local variable.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(status, 0, "threads have a clock");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn run(
    format: Format,
    threads: usize,
    sizes: &[usize],
    (n, k): (usize, usize),
    time: Duration,
    peaks: &Peaks,
) {
    let cpu = Cpu::new(CpuOptions { threads: Some(threads) }).expect("threads");
    let bytes = format.bytes_for(n * k);
    let count = if time.is_zero() { 1 } else { (WEIGHTS / bytes).max(1) };
    // Bytes of 0x3c are scales of moderate magnitude in every format; the time does not depend on
    // the values.
    let file = vec![0x3c; bytes];
    let weights: Vec<Weight> = (0..count)
        .map(|_| {
            let bytes = file.as_slice().into();
            let view = WeightView { name: "bench", format, rows: n, cols: k, bytes };
            cpu.load(view).expect("memory")
        })
        .collect();
    for &rows in sizes {
        let (mut x, mut y) =
            (cpu.alloc(rows, k).expect("memory"), cpu.alloc(rows, n).expect("memory"));
        let values: Vec<f32> =
            (0..rows * k).map(|i| (i * 7919 % 1009) as f32 / 504.5 - 1.0).collect();
        cpu.write(&mut x, 0, &values).expect("write");
        let (started, mut next) = (Instant::now(), 0);
        let mut best = f64::INFINITY;
        loop {
            let round = Clock::now(threads);
            let weight = &weights[next % count];
            cpu.linear(&x, rows, &mut [(black_box(weight), &mut y)]).expect("linear");
            best = best.min(round.elapsed());
            next += 1;
            if started.elapsed() >= time && (time.is_zero() || next >= 5) {
                break;
            }
        }
        let (read, ops) = (bytes as f64 / best, 2.0 * (rows * n * k) as f64 / best);
        let arithmetic = match format {
            Format::F32 | Format::F16 => peaks.f32,
            Format::Bf16 => peaks.bf16.unwrap_or(peaks.f32),
            _ => peaks.int8.unwrap_or(peaks.f32),
        };
        println!(
            "{:<8} {rows:>5} {:>10.1} {:>8.2} {:>8.0} {:>4.0} % of memory {:>4.0} % of arithmetic",
            format.name(),
            best * 1e6,
            read * 1e-9,
            ops * 1e-9,
            100.0 * read / peaks.read,
            100.0 * ops / arithmetic,
        );
    }
}
