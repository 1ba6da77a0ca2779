//! Matching a file's tensors to the canonical ones, and reading those.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use muse_core::contract::TensorInfo;
use muse_core::quant::Format;

use crate::error::{Error, Result, shown};
use crate::folder::SourceFile;
use crate::layout::{Change, Part};
use crate::raw::{Encoding, RawTensor};

/// A canonical tensor of an open checkpoint.
#[derive(Debug)]
pub(crate) struct Entry {
    /// File and bytes; none when the values are made up.
    place: Option<(usize, Range<usize>)>,
    /// Format of those bytes.
    stored: Format,
    change: Change,
}

/// Every canonical tensor with its bytes, and the names of tensors that nothing needs.
pub(crate) struct Matched {
    pub(crate) infos: Vec<TensorInfo>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) ignored: Vec<String>,
}

/// Finds the source of every part, checks its shape and format, and refuses what is left over
/// unless it is known to be without effect.
pub(crate) fn matched(
    path: &str,
    files: &[SourceFile],
    raw: &[RawTensor],
    parts: Vec<Part>,
) -> Result<Matched> {
    let by_name: HashMap<&str, usize> =
        raw.iter().enumerate().map(|(i, tensor)| (tensor.name.as_str(), i)).collect();
    let mut used = vec![false; raw.len()];
    let (mut infos, mut entries) = (Vec::new(), Vec::new());
    for part in parts {
        let Part { rows, cols, change, .. } = part;
        let (place, stored) = if let Change::Fill(_) = change {
            (None, Format::F32)
        } else {
            let Some(&i) = by_name.get(part.source.as_str()) else {
                return Err(Error::Tensor {
                    file: path.to_owned(),
                    tensor: part.source,
                    found: "no such tensor".to_owned(),
                    expected: format!("one of shape {:?}", part.source_shape),
                });
            };
            used[i] = true;
            let (place, stored) = place(&files[raw[i].file].name, &raw[i], &part)?;
            (Some((raw[i].file, place)), stored)
        };
        let format = if becomes_f32(change, rows) { Format::F32 } else { stored };
        infos.push(TensorInfo { name: part.name, format, rows, cols });
        entries.push(Entry { place, stored, change });
    }
    let unused = raw.iter().zip(&used).filter(|(_, used)| !**used).map(|(tensor, _)| tensor);
    let ignored = unused.map(|tensor| without_effect(files, tensor)).collect::<Result<_>>()?;
    Ok(Matched { infos, entries, ignored })
}

/// Vectors that change are made `f32`: their formats may not hold the new values or order.
fn becomes_f32(change: Change, rows: usize) -> bool {
    match change {
        Change::Keep => false,
        Change::PlusOne | Change::Fill(_) => true,
        Change::Split { .. } => rows == 1,
    }
}

/// The bytes of a part inside its source.
fn place(file: &str, tensor: &RawTensor, part: &Part) -> Result<(Range<usize>, Format)> {
    let format = match &tensor.encoding {
        Encoding::Known(format) => *format,
        Encoding::Foreign { name, advice } => {
            return Err(Error::Format {
                file: file.to_owned(),
                tensor: shown(&tensor.name),
                format: name.clone(),
                advice: (*advice).to_owned(),
            });
        }
    };
    let refuse = |found: String, expected: String| Error::Tensor {
        file: file.to_owned(),
        tensor: shown(&tensor.name),
        found,
        expected,
    };
    if trimmed(&tensor.shape) != trimmed(&part.source_shape) {
        let found = format!("shape {:?}", tensor.shape);
        let expected = format!("{:?}, by the model's settings", part.source_shape);
        return Err(refuse(found, expected));
    }
    if !part.cols.is_multiple_of(format.block_values()) {
        let found = format!("rows of {} values as {format}", part.cols);
        let expected = format!("a multiple of {} values", format.block_values());
        return Err(refuse(found, expected));
    }
    let row_bytes = format.bytes_for(part.cols);
    let start = tensor.range.start + part.first_row * row_bytes;
    let range = start..start + part.rows * row_bytes;
    assert!(range.end <= tensor.range.end, "the container checked the tensor's length");
    Ok((range, format))
}

/// A shape without the outer dimensions of 1 that a container may add.
fn trimmed(shape: &[usize]) -> &[usize] {
    let outer = shape.iter().take_while(|&&dim| dim == 1).count();
    &shape[outer.min(shape.len().saturating_sub(1))..]
}

/// The name of a left-over tensor that changes nothing; an error for any other.
fn without_effect(files: &[SourceFile], tensor: &RawTensor) -> Result<String> {
    let name = tensor.name.as_str();
    let file = &files[tensor.file];
    let harmless = name.ends_with("rotary_emb.inv_freq")
        || name.ends_with("rotary_pos_emb.inv_freq")
        || (name.starts_with("rope_freqs") && all_ones(file, tensor));
    if harmless {
        return Ok(name.to_owned());
    }
    let expected = if name.ends_with(".bias") {
        "no such bias: the model has none there, and leaving it out would change the numbers"
    } else if name.starts_with("rope_freqs") {
        "factors of 1: the model does not scale its rotary frequencies"
    } else {
        "only tensors of the model: leaving this one out could change the numbers"
    };
    Err(Error::Tensor {
        file: file.name.clone(),
        tensor: shown(name),
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
        let bytes =
            self.place.as_ref().map_or(&[][..], |(file, range)| &files[*file].bytes[range.clone()]);
        let decoded = || {
            let mut values = vec![0.0; info.rows * info.cols];
            self.stored.decode(bytes, &mut values);
            values
        };
        match self.change {
            Change::Keep => Cow::Borrowed(bytes),
            Change::Fill(value) => to_bytes((0..info.rows * info.cols).map(|_| value)),
            Change::PlusOne => to_bytes(decoded().into_iter().map(|value| value + 1.0)),
            Change::Split { heads } if info.rows == 1 => {
                let values = decoded();
                to_bytes(half_split(info.cols, heads).map(|from| values[from]))
            }
            Change::Split { heads } => {
                let row = info.format.bytes_for(info.cols);
                let rows = half_split(info.rows, heads);
                let mut out = Vec::with_capacity(bytes.len());
                rows.for_each(|from| out.extend_from_slice(&bytes[from * row..][..row]));
                Cow::Owned(out)
            }
        }
    }

    /// Gives the memory of the source's bytes back until they are read again.
    pub(crate) fn release(&self, files: &[SourceFile]) {
        if let Some((file, range)) = &self.place {
            files[*file].bytes.release(range.clone());
        }
    }
}

/// For each row in half-split order, the row of the interleaved order it comes from.
fn half_split(rows: usize, heads: usize) -> impl Iterator<Item = usize> {
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
    fn half_split_undoes_interleaving() {
        let order: Vec<usize> = half_split(12, 2).collect();
        assert_eq!(order, [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]);
    }

    #[test]
    fn outer_ones_do_not_matter() {
        assert_eq!(trimmed(&[1, 1, 4]), trimmed(&[4]));
        assert_ne!(trimmed(&[4, 1]), trimmed(&[4]));
        assert_eq!(trimmed(&[1]), [1]);
    }
}
