//! Lists the tensors of a checkpoint: name, format, shape, smallest and largest value.
//!
//! `cargo run -p muse-weights --example tensors -- [PATH]`; without a path it reads
//! the built-in test model.

use std::path::PathBuf;

use muse_core::contract::WeightSource;
use muse_weights::Checkpoint;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let path = path.unwrap_or_else(|| muse_testkit::nano_dir().join("target"));
    let checkpoint = Checkpoint::open(&path)?;
    for info in checkpoint.tensors() {
        let values = checkpoint.weight(&info.name)?.to_f32();
        let min = values.iter().copied().fold(f32::INFINITY, f32::min);
        let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let shape = format!("{} x {}", info.rows, info.cols);
        println!("{:<36} {:<6} {shape:>12}  {min:>9.4} to {max:>8.4}", info.name, info.format);
        // The bytes of a mapped tensor are read again when it is asked for again.
        checkpoint.release(&info.name);
    }
    Ok(())
}
