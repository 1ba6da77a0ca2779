//! Matches the tensors of the files to the canonical ones, and reads those.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use muse_core::contract::TensorInfo;
use muse_core::quant::Format;

use crate::error::{Error, Result, escaped};
use crate::folder::SourceFile;
use crate::layout::{TensorPlan, Transform};
use crate::raw::{Encoding, RawTensor};

/// A canonical tensor of an open checkpoint.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Index of the file and byte range in it; none for a constant.
    source: Option<(usize, Range<usize>)>,
    /// Format of those bytes.
    stored: Format,
    transform: Transform,
}

/// Every canonical tensor with its source, and the names of tensors without effect.
pub(crate) struct Matched {
    pub(crate) infos: Vec<TensorInfo>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) ignored: Vec<String>,
}

/// Finds the source of every canonical tensor, checks its shape and format, and refuses tensors
/// that are left over unless they are known to have no effect.
pub(crate) fn match_tensors(
    path: &str,
    files: &[SourceFile],
    raw: &[RawTensor],
    plans: Vec<TensorPlan>,
) -> Result<Matched> {
    let by_name: HashMap<&str, usize> =
        raw.iter().enumerate().map(|(i, tensor)| (tensor.name.as_str(), i)).collect();
    let mut used = vec![false; raw.len()];
    let (mut infos, mut entries) = (Vec::new(), Vec::new());
    for plan in plans {
        let TensorPlan { rows, cols, transform, .. } = plan;
        let (source, stored) = if let Transform::Constant(_) = transform {
            (None, Format::F32)
        } else {
            let Some(&i) = by_name.get(plan.source.as_str()) else {
                return Err(Error::Tensor {
                    file: path.to_owned(),
                    tensor: plan.source,
                    found: "no such tensor".to_owned(),
                    expected: format!("one of shape {:?}", plan.source_shape),
                });
            };
            used[i] = true;
            let (range, stored) = source_range(&files[raw[i].file].name, &raw[i], &plan)?;
            (Some((raw[i].file, range)), stored)
        };
        let format = if becomes_f32(transform, rows) { Format::F32 } else { stored };
        infos.push(TensorInfo { name: plan.name, format, rows, cols });
        entries.push(Entry { source, stored, transform });
    }
    let unused = raw.iter().zip(&used).filter(|(_, used)| !**used).map(|(tensor, _)| tensor);
    let ignored = unused.map(|tensor| ignored_name(files, tensor)).collect::<Result<_>>()?;
    Ok(Matched { infos, entries, ignored })
}

/// Transformed vectors become f32: their formats may not hold the new values or order.
fn becomes_f32(transform: Transform, rows: usize) -> bool {
    match transform {
        Transform::Identity => false,
        Transform::AddOne | Transform::Constant(_) => true,
        Transform::Deinterleave { .. } => rows == 1,
    }
}

/// The byte range of a canonical tensor in its file, and the format of those bytes.
fn source_range(
    file: &str,
    tensor: &RawTensor,
    plan: &TensorPlan,
) -> Result<(Range<usize>, Format)> {
    let format = match &tensor.encoding {
        Encoding::Known(format) => *format,
        Encoding::Foreign { name, advice } => {
            return Err(Error::Format {
                file: file.to_owned(),
                tensor: escaped(&tensor.name),
                format: name.clone(),
                advice: (*advice).to_owned(),
            });
        }
    };
    let refuse = |found: String, expected: String| Error::Tensor {
        file: file.to_owned(),
        tensor: escaped(&tensor.name),
        found,
        expected,
    };
    if without_outer_ones(&tensor.shape) != without_outer_ones(&plan.source_shape) {
        let found = format!("shape {:?}", tensor.shape);
        let expected = format!("{:?}, by the model's settings", plan.source_shape);
        return Err(refuse(found, expected));
    }
    if !plan.cols.is_multiple_of(format.block_values()) {
        let found = format!("rows of {} values as {format}", plan.cols);
        let expected = format!("a multiple of {} values", format.block_values());
        return Err(refuse(found, expected));
    }
    let row_bytes = format.bytes_for(plan.cols);
    let start = tensor.range.start + plan.first_row * row_bytes;
    let range = start..start + plan.rows * row_bytes;
    assert!(range.end <= tensor.range.end, "the tensor's length was checked against its shape");
    Ok((range, format))
}

/// A shape without the outer dimensions of 1 that some files add.
fn without_outer_ones(shape: &[usize]) -> &[usize] {
    let outer = shape.iter().take_while(|&&dim| dim == 1).count();
    &shape[outer.min(shape.len().saturating_sub(1))..]
}

/// The name of a left-over tensor that has no effect; an error for any other.
fn ignored_name(files: &[SourceFile], tensor: &RawTensor) -> Result<String> {
    let name = tensor.name.as_str();
    let file = &files[tensor.file];
    let harmless = name.ends_with("rotary_emb.inv_freq")
        || name.ends_with("rotary_pos_emb.inv_freq")
        || (name.starts_with("rope_freqs") && all_ones(file, tensor));
    if harmless {
        return Ok(name.to_owned());
    }
    let expected = if name.ends_with(".bias") {
        "no such bias: the model has none there, and leaving it out would transform the numbers"
    } else if name.starts_with("rope_freqs") {
        "factors of 1: the model does not scale its rotary frequencies"
    } else {
        "only tensors of the model: leaving this one out could transform the numbers"
    };
    Err(Error::Tensor {
        file: file.name.clone(),
        tensor: escaped(name),
        found: format!("it, with shape {:?}", tensor.shape),
        expected: expected.to_owned(),
    })
}

fn all_ones(file: &SourceFile, tensor: &RawTensor) -> bool {
    tensor.encoding == Encoding::Known(Format::F32)
        && file.bytes[tensor.range.clone()].chunks(4).all(|value| value == 1.0_f32.to_le_bytes())
}

impl Entry {
    /// The canonical bytes.
    pub(crate) fn read<'a>(&self, files: &'a [SourceFile], info: &TensorInfo) -> Cow<'a, [u8]> {
        let bytes = self
            .source
            .as_ref()
            .map_or(&[][..], |(file, range)| &files[*file].bytes[range.clone()]);
        let decoded = || {
            let mut values = vec![0.0; info.rows * info.cols];
            self.stored.decode(bytes, &mut values);
            values
        };
        match self.transform {
            Transform::Identity => Cow::Borrowed(bytes),
            Transform::Constant(value) => to_bytes((0..info.rows * info.cols).map(|_| value)),
            Transform::AddOne => to_bytes(decoded().into_iter().map(|value| value + 1.0)),
            Transform::Deinterleave { heads } if info.rows == 1 => {
                let values = decoded();
                to_bytes(deinterleaved(info.cols, heads).map(|from| values[from]))
            }
            Transform::Deinterleave { heads } => {
                let row = info.format.bytes_for(info.cols);
                let rows = deinterleaved(info.rows, heads);
                let mut out = Vec::with_capacity(bytes.len());
                rows.for_each(|from| out.extend_from_slice(&bytes[from * row..][..row]));
                Cow::Owned(out)
            }
        }
    }

    /// The file that holds the source; none for a constant.
    pub(crate) fn file<'a>(&self, files: &'a [SourceFile]) -> Option<&'a SourceFile> {
        self.source.as_ref().map(|(file, _)| &files[*file])
    }

    /// Returns the memory of the source's bytes to the system until they are read again.
    pub(crate) fn release(&self, files: &[SourceFile]) {
        if let Some((file, range)) = &self.source {
            files[*file].bytes.release(range.clone());
        }
    }
}

/// For each row in half-split order, the row in interleaved order that it comes from.
fn deinterleaved(rows: usize, heads: usize) -> impl Iterator<Item = usize> {
    let head = rows / heads;
    (0..rows).map(move |row| {
        let (first, within) = (row / head * head, row % head);
        first + 2 * (within % (head / 2)) + within / (head / 2)
    })
}

fn to_bytes(values: impl Iterator<Item = f32>) -> Cow<'static, [u8]> {
    Cow::Owned(values.flat_map(f32::to_le_bytes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deinterleaving_gives_half_split_order() {
        let order: Vec<usize> = deinterleaved(12, 2).collect();
        assert_eq!(order, [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
    }

    #[test]
    fn outer_dimensions_of_one_are_ignored() {
        assert_eq!(without_outer_ones(&[1, 1, 4]), without_outer_ones(&[4]));
        assert_ne!(without_outer_ones(&[4, 1]), without_outer_ones(&[4]));
        assert_eq!(without_outer_ones(&[1]), [1]);
    }
}
