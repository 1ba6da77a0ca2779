//! Writes a checkpoint as a GGUF file in another format, tensor by tensor.

use std::path::Path;

use muse_core::quant::Format;

use super::describe;
use super::file::{GgufTensor, GgufWriter};
use super::imatrix::Imatrix;
use super::plan::{ModelKind, PlannedTensor, RowOrder, plan};
use super::rows::{Conversion, RowError, SquaredError};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};

/// What to write.
#[derive(Clone, Copy, Debug)]
pub struct QuantizeOptions<'a> {
    /// Which model of the checkpoint.
    pub kind: ModelKind,
    /// Format of the matrices.
    pub format: Format,
    /// Format of the LM head (`output.weight`).
    pub lm_head: Format,
    /// Importances of the columns.
    pub imatrix: Option<&'a Imatrix>,
    /// Source of the tokenizer when the checkpoint has none, as the folder of a drafter.
    pub vocabulary: Option<&'a Checkpoint>,
    /// Number of threads.
    pub threads: usize,
}

/// An event of [`quantize`].
#[derive(Clone, Copy, Debug)]
pub enum QuantizeProgress<'a> {
    /// Tensor bytes were written.
    Bytes {
        /// Bytes written up to now.
        done: u64,
        /// Bytes of all tensors.
        total: u64,
    },
    /// A tensor is complete.
    Tensor(&'a QuantizedTensor),
}

/// A tensor that was written.
#[derive(Clone, Debug)]
pub struct QuantizedTensor {
    /// The tensor in the file.
    pub tensor: GgufTensor,
    /// The requested format, where the width is no multiple of its quant block.
    pub requested: Option<Format>,
    /// Format in the source.
    pub from: Format,
    /// Root mean square of the error divided by that of the values; 0 for a copy.
    pub error: f64,
    /// Whether the importance matrix has this tensor.
    pub weighted: bool,
}

/// Writes a model of a checkpoint to `out`, which must not exist. Returns the bytes of the file.
///
/// # Errors
/// [`Error`] when the options do not fit the checkpoint, a value is not finite or does not fit its
/// format, or the system refuses. `out` does not exist then.
pub fn quantize(
    checkpoint: &Checkpoint,
    out: &Path,
    options: &QuantizeOptions<'_>,
    on_progress: &mut dyn FnMut(QuantizeProgress<'_>),
) -> Result<u64> {
    if out.symlink_metadata().is_ok() {
        return Err(Error::NotACheckpoint {
            path: out.display().to_string(),
            found: "a file or folder".to_owned(),
            expected: "a name that is not in use: files are never overwritten".to_owned(),
        });
    }
    let planned = plan(checkpoint, options.kind, options.format, options.lm_head);
    for planned in &planned {
        check(checkpoint, planned, options.imatrix)?;
    }
    let name = Path::new(checkpoint.path()).file_stem().unwrap_or_default().to_string_lossy();
    let mut keys = describe::keys(checkpoint, options.kind, &name, options.vocabulary)?;
    if let Some(id) = file_type(options.format) {
        keys.set("general.file_type", &id);
    }
    if options.format.block_values() > 1 {
        keys.set("general.quantization_version", &2_u32);
    }
    if let Some(imatrix) = options.imatrix {
        keys.set("quantize.imatrix.file", imatrix.name());
        keys.set("quantize.imatrix.entries_count", &(imatrix.len() as u32));
    }
    let tensors: Vec<GgufTensor> = planned.iter().map(|planned| planned.tensor.clone()).collect();
    let total = tensors.iter().map(|tensor| tensor.bytes() as u64).sum();
    let mut writer = GgufWriter::create(out, &keys, &tensors)?;
    let mut done = 0;
    for planned in planned {
        let written = write(checkpoint, planned, options, &mut writer, &mut |bytes| {
            done += bytes;
            on_progress(QuantizeProgress::Bytes { done, total });
        })?;
        on_progress(QuantizeProgress::Tensor(&written));
    }
    for source in [Some(checkpoint), options.vocabulary].into_iter().flatten() {
        source.check_unchanged()?;
    }
    writer.finish()
}

/// Refuses what would fail later, before hours of work.
fn check(
    checkpoint: &Checkpoint,
    planned: &PlannedTensor,
    imatrix: Option<&Imatrix>,
) -> Result<()> {
    let PlannedTensor { tensor, source, .. } = planned;
    let quantized = source.format.block_values() > 1 && source.format != Format::Q8_0;
    if quantized && tensor.format.block_values() > 1 && tensor.format != source.format {
        return Err(Error::Tensor {
            file: checkpoint.path().to_owned(),
            tensor: source.name.clone(),
            found: format!("format {}", source.format),
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
    planned: PlannedTensor,
    options: &QuantizeOptions<'_>,
    writer: &mut GgufWriter,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<QuantizedTensor> {
    let PlannedTensor { tensor, source, requested, order } = planned;
    let refuse = |found: String, expected: String| Error::Tensor {
        file: checkpoint.path().to_owned(),
        tensor: source.name.clone(),
        found,
        expected,
    };
    let view = checkpoint.tensor(&source.name)?;
    let same_values = order == RowOrder::Same || source.rows > 1 && order != RowOrder::Summed;
    let copied = tensor.format == source.format && same_values;
    let encoder = tensor.format.encoder().filter(|_| !copied);
    if encoder.is_none() && !copied {
        let expected = format!("a format that can be written, not {}", tensor.format);
        return Err(refuse(format!("format {}", source.format), expected));
    }
    let importance = match options.imatrix {
        Some(imatrix) => imatrix.columns(&tensor.name, source.cols)?,
        None => None,
    };
    let conversion =
        Conversion { source: &view, format: tensor.format, order, encoder, importance };
    let row_bytes = conversion.row_bytes();
    let chunk = conversion.chunk_rows(options.threads);
    let mut buffer = vec![0; chunk.min(source.rows) * row_bytes];
    let mut error = SquaredError::default();
    for first in (0..source.rows).step_by(chunk) {
        let out = &mut buffer[..chunk.min(source.rows - first) * row_bytes];
        let converted = conversion.run(first, out, options.threads);
        error.add(converted.map_err(|row_error| match row_error {
            RowError::NotFinite { row } => {
                refuse(format!("a value that is not finite in row {row}"), "numbers".to_owned())
            }
            RowError::OutOfRange { row, value } => refuse(
                format!("{value:e} in row {row}"),
                format!("values that {} can hold; BF16 holds it", tensor.format),
            ),
        })?);
        writer.write(out)?;
        on_bytes(out.len() as u64);
    }
    let (from, weighted) = (source.format, importance.is_some());
    Ok(QuantizedTensor { tensor, requested, from, error: error.relative(), weighted })
}

/// The value of `general.file_type` for a file whose matrices are in this format.
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
