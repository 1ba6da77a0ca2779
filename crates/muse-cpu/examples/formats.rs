//! Multiplies a matrix with a vector in every format that has an encoder, and prints the size of the
//! weights, the error of the product and its time.

use std::time::Instant;

use muse_core::Result;
use muse_core::contract::{Backend, WeightView};
use muse_core::quant::{Encoder, Format};
use muse_cpu::{Cpu, CpuOptions, Isa};

const ROWS: usize = 2048;
const COLS: usize = 4096;

fn main() -> Result<()> {
    let cpu = Cpu::new(CpuOptions::default())?;
    println!("{ROWS} x {COLS} weights, instruction set {}", Isa::best());
    println!("{:<6} {:>9} {:>9} {:>9}", "format", "bits", "error", "µs");
    let weights: Vec<f32> = (0..ROWS * COLS).map(|i| noise(i) * 0.02).collect();
    let x: Vec<f32> = (0..COLS).map(|i| noise(i + 12_345)).collect();
    let dot = |row: &[f32]| row.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
    let exact: Vec<f64> = weights.chunks_exact(COLS).map(dot).collect();
    for encoder in Format::ALL.iter().filter_map(|format| format.encoder()) {
        let (product, microseconds) = multiply(&cpu, encoder, &weights, &x)?;
        let squares = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
        let misses = product.iter().zip(&exact).map(|(got, want)| f64::from(*got) - want);
        let error = (squares(&mut misses.into_iter()) / squares(&mut exact.iter().copied())).sqrt();
        let format = encoder.format();
        let bits = 8.0 * format.block_bytes() as f64 / format.block_values() as f64;
        println!("{:<6} {bits:>9.2} {error:>9.5} {microseconds:>9.1}", format.name());
    }
    Ok(())
}

/// The product of the weights in a format with `x`, and the shortest time of some runs.
fn multiply(cpu: &Cpu, encoder: Encoder, weights: &[f32], x: &[f32]) -> Result<(Vec<f32>, f64)> {
    let format = encoder.format();
    let mut bytes = vec![0; format.bytes_for(weights.len())];
    encoder.encode(weights, None, &mut bytes);
    let view = WeightView { name: "example", format, rows: ROWS, cols: COLS, bytes: bytes.into() };
    let weight = cpu.load(view)?;
    let (mut input, mut output) = (cpu.alloc(1, COLS)?, cpu.alloc(1, ROWS)?);
    cpu.write(&mut input, 0, x)?;
    let mut shortest = f64::INFINITY;
    for _ in 0..10 {
        let started = Instant::now();
        cpu.linear(&input, 1, &mut [(&weight, &mut output)])?;
        shortest = shortest.min(started.elapsed().as_secs_f64() * 1e6);
    }
    let mut product = vec![0.0; ROWS];
    cpu.read(&output, 0, &mut product)?;
    Ok((product, shortest))
}

/// Reproducible noise in -1 to 1.
fn noise(i: usize) -> f32 {
    let bits = (i as u32).wrapping_mul(2_654_435_761).wrapping_mul(i as u32 | 1) >> 8;
    bits as f32 / (1 << 23) as f32 - 1.0
}
