//! A checkpoint as a GGUF file in another format, tensor by tensor.

use std::path::Path;

use muse_core::quant::Format;

use super::describe;
use super::file::{GgufTensor, GgufWriter};
use super::imatrix::Imatrix;
use super::plan::{ModelKind, Order, Planned, plan};
use super::rows::{Conversion, Cost, Fault};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};

/// What to make of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Recipe<'a> {
    /// Which of its models.
    pub kind: ModelKind,
    /// Format of the matrices.
    pub body: Format,
    /// Format of the head.
    pub head: Format,
    /// How much each column matters.
    pub imatrix: Option<&'a Imatrix>,
    /// Where the tokenizer is taken from when the checkpoint has none, as folders of drafters.
    pub vocabulary: Option<&'a Checkpoint>,
    /// Threads that convert.
    pub threads: usize,
}

/// What happens while a file is written.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// So many bytes of tensors are written.
    Bytes {
        /// Up to now.
        done: u64,
        /// In the end.
        total: u64,
    },
    /// A tensor is complete.
    Tensor(&'a Written),
}

/// A tensor that was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// The tensor in the file.
    pub tensor: GgufTensor,
    /// What was asked for, where the width is not a multiple of its blocks.
    pub wanted: Option<Format>,
    /// Format of the source.
    pub from: Format,
    /// Root of the mean squared error as a share of the values' own; 0 for a copy.
    pub error: f64,
    /// Whether importances were known.
    pub weighted: bool,
}

/// Writes a model of a checkpoint to `out`, which must not exist. Says the file's bytes.
///
/// # Errors
/// [`Error`] when the recipe does not fit the checkpoint, a value is not finite or does not fit its
/// format, or the system refuses; `out` does not exist then.
pub fn quantize(
    checkpoint: &Checkpoint,
    out: &Path,
    recipe: &Recipe<'_>,
    watch: &mut dyn FnMut(Progress<'_>),
) -> Result<u64> {
    if out.symlink_metadata().is_ok() {
        return Err(Error::NotACheckpoint {
            path: out.display().to_string(),
            found: "a file or folder".to_owned(),
            expected: "a name that is free: files are never overwritten".to_owned(),
        });
    }
    let planned = plan(checkpoint, recipe.kind, recipe.body, recipe.head);
    for planned in &planned {
        check(checkpoint, planned, recipe.imatrix)?;
    }
    let name = Path::new(checkpoint.path()).file_stem().unwrap_or_default().to_string_lossy();
    let mut keys = describe::keys(checkpoint, recipe.kind, &name, recipe.vocabulary)?;
    if let Some(id) = file_type(recipe.body) {
        keys.set("general.file_type", &id);
    }
    if recipe.body.block_values() > 1 {
        keys.set("general.quantization_version", &2_u32);
    }
    if let Some(imatrix) = recipe.imatrix {
        keys.set("quantize.imatrix.file", imatrix.name());
        keys.set("quantize.imatrix.entries_count", &(imatrix.len() as u32));
    }
    let tensors: Vec<GgufTensor> = planned.iter().map(|planned| planned.tensor.clone()).collect();
    let total = tensors.iter().map(|tensor| tensor.bytes() as u64).sum();
    let mut writer = GgufWriter::create(out, &keys, &tensors)?;
    let mut done = 0;
    for planned in planned {
        let written = write(checkpoint, planned, recipe, &mut writer, &mut |bytes| {
            done += bytes;
            watch(Progress::Bytes { done, total });
        })?;
        watch(Progress::Tensor(&written));
    }
    writer.finish()
}

/// Refuses what would go wrong, before hours of work.
fn check(checkpoint: &Checkpoint, planned: &Planned, imatrix: Option<&Imatrix>) -> Result<()> {
    let Planned { tensor, source, .. } = planned;
    let coarse = source.format.block_values() > 1 && source.format != Format::Q8_0;
    if coarse && tensor.format.block_values() > 1 && tensor.format != source.format {
        return Err(Error::Tensor {
            file: checkpoint.path().to_owned(),
            tensor: source.name.clone(),
            found: format!("it in {}", source.format),
            expected: format!(
                "F32, BF16, F16 or Q8_0: quantized again to {}, it would have the errors of both",
                tensor.format
            ),
        });
    }
    if let Some(imatrix) = imatrix {
        imatrix.columns(&tensor.name, source.cols)?;
    }
    Ok(())
}

fn write(
    checkpoint: &Checkpoint,
    planned: Planned,
    recipe: &Recipe<'_>,
    writer: &mut GgufWriter,
    wrote: &mut dyn FnMut(u64),
) -> Result<Written> {
    let Planned { tensor, source, wanted, order } = planned;
    let refuse = |found: String, expected: String| Error::Tensor {
        file: checkpoint.path().to_owned(),
        tensor: source.name.clone(),
        found,
        expected,
    };
    let view = checkpoint.located(&source.name)?;
    let same_values = order == Order::Same || source.rows > 1 && order != Order::Summed;
    let copied = tensor.format == source.format && same_values;
    let encoder = tensor.format.encoder().filter(|_| !copied);
    if encoder.is_none() && !copied {
        let expected = format!("a format that can be written, not {}", tensor.format);
        return Err(refuse(format!("it in {}", source.format), expected));
    }
    let importance = match recipe.imatrix {
        Some(imatrix) => imatrix.columns(&tensor.name, source.cols)?,
        None => None,
    };
    let conversion =
        Conversion { source: &view, format: tensor.format, order, encoder, importance };
    let row_bytes = conversion.row_bytes();
    let piece = conversion.piece(recipe.threads);
    let mut buffer = vec![0; piece.min(source.rows) * row_bytes];
    let mut cost = Cost::default();
    for first in (0..source.rows).step_by(piece) {
        let out = &mut buffer[..piece.min(source.rows - first) * row_bytes];
        let converted = conversion.run(first, out, recipe.threads);
        cost.add(converted.map_err(|fault| match fault {
            Fault::Source { row } => {
                refuse(format!("a value that is not finite in row {row}"), "numbers".to_owned())
            }
            Fault::TooLarge { row, value } => refuse(
                format!("{value:e} in row {row}"),
                format!("values that {} can hold; BF16 holds it", tensor.format),
            ),
        })?);
        writer.write(out)?;
        wrote(out.len() as u64);
    }
    let (from, weighted) = (source.format, importance.is_some());
    Ok(Written { tensor, wanted, from, error: cost.relative(), weighted })
}

/// What `general.file_type` says of a file whose matrices are in this format.
fn file_type(format: Format) -> Option<u32> {
    Some(match format {
        Format::F32 => 0,
        Format::F16 => 1,
        Format::Q4_0 => 2,
        Format::Q4_1 => 3,
        Format::Q8_0 => 7,
        Format::Q5_0 => 8,
        Format::Q5_1 => 9,
        Format::Q4K => 14,
        Format::Q5K => 16,
        Format::Q6K => 18,
        Format::Bf16 => 32,
        _ => return None,
    })
}
