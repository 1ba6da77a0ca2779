//! Multiplies two small matrices on a Tenstorrent device, or says what is missing.
//!
//! `MUSE_TT_DIR=DIR cargo run -p muse-tt --features tt --example matmul`, on a machine with a card or
//! with a simulator in `TT_METAL_SIMULATOR`, after `cargo xtask tt-setup DIR`.

use muse_core::Result;
use muse_core::quant::tile::TileFormat;
use muse_tt::{Cores, Device, DeviceOptions, Matrix, Programs, Weight, op, open_shim};

fn main() {
    if let Err(error) = run() {
        println!("{error}");
    }
}

fn run() -> Result<()> {
    let device = Device::open(open_shim()?, DeviceOptions::default())?;
    // x [32, 64] and w [96, 64], so that x · wᵀ is [32, 96].
    let x: Vec<f32> = (0..32 * 64).map(|i| (i % 5) as f32).collect();
    let w: Vec<f32> = (0..96 * 64).map(|i| (i % 3) as f32).collect();
    let x = Matrix::from_values(&device, TileFormat::Bf16, &x, 64)?;
    let w = Weight::from_values(&device, TileFormat::Bf16, &w, 64)?;
    let out = Matrix::new(&device, TileFormat::Bf16, 32, 96)?;
    let (columns, rows) = device.grid();
    let plan = op::matmul(&x, &w, &out, Cores::grid(columns, rows));
    let mut programs = Programs::new(&device);
    programs.run(&plan, true)?;
    println!("{} cores; first row: {:?}", plan.cores(), &out.read()?[..8]);
    Ok(())
}
