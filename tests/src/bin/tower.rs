//! `tower [--layers N] [--type T] [--grid HxW] [--threads N] [--budget N]`: encodes a picture with
//! a tower of the published width and random weights, and prints the time of each kind of operation
//! beside what the machine can do. One thread is measured by its CPU time, several by wall time.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use muse_core::contract::{ContentHash, Patches};
use muse_core::quant::Format;
use muse_cpu::{Cpu, CpuOptions, Peaks};
use muse_tests::timed::{TimedCpu, Timer};
use muse_tests::wide::{RandomTower, tower_shape};
use muse_vision::{Tower, TowerOptions};

const USAGE: &str = "use [--layers N] [--type T] [--grid HxW] [--threads N] [--budget N]";

struct Options {
    layers: usize,
    format: Format,
    grid: (usize, usize),
    threads: usize,
    budget: usize,
}

fn options() -> Result<Options> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (layers, format, grid, budget) = (4, Format::Q8_0, (74, 74), usize::MAX);
    let mut options = Options { layers, format, grid, threads, budget };
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{flag} needs a value; {USAGE}"))?;
        match flag.as_str() {
            "--layers" => options.layers = value.parse().context("--layers needs a number")?,
            "--threads" => options.threads = value.parse().context("--threads needs a number")?,
            "--budget" => options.budget = value.parse().context("--budget needs a number")?,
            "--type" => {
                let found = Format::ALL.iter().find(|f| f.name().eq_ignore_ascii_case(&value));
                options.format = *found.with_context(|| format!("unknown type {value}"))?;
            }
            "--grid" => {
                let (height, width) = value.split_once('x').context("--grid needs HxW")?;
                options.grid = (height.parse()?, width.parse()?);
            }
            _ => bail!("unknown flag {flag}; {USAGE}"),
        }
    }
    Ok(options)
}

fn main() -> Result<()> {
    let Options { layers, format, grid: (grid_h, grid_w), threads, budget } = options()?;
    let peaks = Peaks::measure(threads, Duration::from_millis(300))?;
    let backend =
        Arc::new(TimedCpu::new(Cpu::new(CpuOptions { threads: Some(threads) })?, threads));
    let source = RandomTower::new(tower_shape(layers), format);
    let tower = Tower::load(backend.clone(), &source, TowerOptions::default(), &mut |_, _| {})?;
    let values = (0..grid_h * grid_w * 1176).map(|i| (i * 7919 % 1009) as f32 / 504.5 - 1.0);
    let hash = ContentHash([0; 16]);
    let patches = Patches { values: values.collect(), grid_t: 1, grid_h, grid_w, hash };
    let giga = |rate: Option<f64>| rate.map_or("none".into(), |rate| format!("{:.0}", rate * 1e-9));
    println!(
        "{layers} layers, {format}, {grid_h} x {grid_w} patches, {} rows, {threads} threads; int8 {}, \
         bf16 {}, f32 {} Gop/s; {:.0} MB while encoding",
        tower.rows(&patches),
        giga(peaks.int8),
        giga(peaks.bf16),
        giga(Some(peaks.f32)),
        tower.encoding_bytes(&patches) as f64 * 1e-6
    );
    backend.take_costs();
    let (started, mut longest) = (Timer::start(threads), 0.0_f64);
    let mut encoding = tower.start(patches.clone())?;
    loop {
        let slice = Timer::start(threads);
        let finished = tower.advance(&mut encoding, budget)?;
        longest = longest.max(slice.elapsed().as_secs_f64());
        if finished {
            break;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{seconds:.3} s in all, longest slice {longest:.3} s");
    let products = match format {
        Format::F32 | Format::F16 => Some(peaks.f32),
        Format::Bf16 => peaks.bf16,
        _ => peaks.int8,
    };
    let mut rest = seconds;
    for (kind, cost) in backend.take_costs() {
        rest -= cost.seconds;
        let peak = if kind == "products" { products } else { peaks.bf16 };
        let rate = cost.operations / cost.seconds;
        let share = peak.unwrap_or(peaks.f32);
        let of_peak = match cost.operations > 0.0 {
            true => format!("{:.0} Gop/s, {:.0} % of peak", rate * 1e-9, 100.0 * rate / share),
            false => String::new(),
        };
        println!(
            "{kind:<12} {:>8.3} s {:>5.1} %  {of_peak}",
            cost.seconds,
            100.0 * cost.seconds / seconds
        );
    }
    println!("{:<12} {rest:>8.3} s {:>5.1} %", "host", 100.0 * rest / seconds);
    Ok(())
}
