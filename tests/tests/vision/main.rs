//! The vision tower and encoder: values beside reference implementations, slices, shared rows, and
//! pictures in the text model.

mod encoder;
mod golden;
mod slices;
mod text;

use std::sync::Arc;

use muse_core::Result;
use muse_core::contract::WeightSource;
use muse_core::quant::Format;
use muse_cpu::Cpu;
use muse_testkit::{Golden, golden_dir, nano_dir};
use muse_tests::retype::retype;
use muse_tests::vision::Pixels;
use muse_vision::{Tower, TowerOptions};
use muse_weights::Checkpoint;

/// A budget for a whole picture.
const WHOLE: usize = usize::MAX;

fn tiny() -> Result<Checkpoint> {
    Ok(Checkpoint::open(&golden_dir().join("tiny/target"))?)
}

fn nano() -> Result<Checkpoint> {
    Ok(Checkpoint::open(&nano_dir().join("target"))?)
}

/// The projector file of a type, or with its BF16 matrices in a float format.
fn projector(kind: &str, format: Option<Format>) -> Result<Checkpoint> {
    let path = golden_dir().join(format!("nano/gguf/mmproj.{kind}.gguf"));
    let Some(format) = format else { return Ok(Checkpoint::open(&path)?) };
    let bytes = std::fs::read(path).expect("part of the tree");
    let files = [("mmproj.gguf".to_owned(), retype(&bytes, format).into())];
    Ok(Checkpoint::from_files(files)?)
}

fn tower(
    backend: &Arc<Cpu>,
    source: &dyn WeightSource,
    options: TowerOptions,
) -> Result<Tower<Cpu>> {
    Tower::load(Arc::clone(backend), source, options, &mut |_, _| {})
}

/// A picture of a golden as the reference resized it.
fn picture(golden: &Golden, name: &str) -> Pixels {
    let (shape, values) = golden.bytes(&format!("{name}.resized_hf"));
    Pixels { height: shape[0], width: shape[1], values: values.clone() }
}
