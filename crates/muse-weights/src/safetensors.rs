//! Parses the safetensors container: header length, JSON header, the bytes of the tensors without
//! gaps.

use std::collections::HashMap;
use std::fmt;

use muse_core::quant::Format;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::{Error, Result, escaped};
use crate::folder::SourceFile;
use crate::raw::{Encoding, RawTensor, checked_product, refuse_duplicates};

/// The format's own bound on the header, in bytes.
const MAX_HEADER: u64 = 100_000_000;

/// The tensors of a file, in the order of their bytes.
pub(crate) fn tensors(file: &SourceFile, index: usize) -> Result<Vec<RawTensor>> {
    let (header, data_at) = header(file)?;
    let entries: Entries<'_> = serde_json::from_str(header)
        .map_err(|error| malformed(file, "header", error, "a JSON object of tensors"))?;
    let mut tensors = Vec::new();
    for (name, raw) in entries.0 {
        if name == "__metadata__" {
            serde_json::from_str::<HashMap<String, String>>(raw.get())
                .map_err(|error| malformed(file, "__metadata__", error, "strings by name"))?;
        } else {
            tensors.push(tensor(file, index, name, raw.get(), data_at)?);
        }
    }
    refuse_duplicates(&file.name, &tensors)?;
    tensors.sort_by_key(|tensor| (tensor.range.start, tensor.range.end));
    check_contiguous(file, &tensors, data_at)?;
    Ok(tensors)
}

/// The header's JSON and the offset of the data.
fn header(file: &SourceFile) -> Result<(&str, usize)> {
    let bytes = &*file.bytes;
    refuse_pointer(file)?;
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        let found = format!("a file of {} bytes", bytes.len());
        return Err(malformed(file, "header length", found, "at least 8 bytes"));
    };
    let length = u64::from_le_bytes(*length);
    let max = MAX_HEADER.min(rest.len() as u64);
    if length > max {
        let found = format!("a header of {length} bytes");
        let expected = format!("at most {max}; is the file complete and a safetensors file?");
        return Err(malformed(file, "header length", found, expected));
    }
    let length = length as usize;
    let text = std::str::from_utf8(&rest[..length])
        .map_err(|error| malformed(file, "header", error, "UTF-8"))?;
    Ok((text, 8 + length))
}

/// Refuses a Git LFS pointer, which a clone without LFS leaves in place of the file.
pub(crate) fn refuse_pointer(file: &SourceFile) -> Result<()> {
    if file.bytes.starts_with(b"version https://git-lfs") {
        let expected = "the weights; fetch them with `git lfs pull` or download the file itself";
        return Err(malformed(file, "start", "a Git LFS pointer", expected));
    }
    Ok(())
}

/// The header's members in order: a map would hide a name that is given twice.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Members).map(Self)
    }
}

/// The header's entry of a tensor.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

fn tensor(
    file: &SourceFile,
    index: usize,
    name: String,
    raw: &str,
    data_at: usize,
) -> Result<RawTensor> {
    let refuse = |found: String, expected: String| Error::Tensor {
        file: file.name.clone(),
        tensor: escaped(&name),
        found,
        expected,
    };
    let entry: Entry = serde_json::from_str(raw).map_err(|error| {
        refuse(error.to_string(), "an object with dtype, shape and data_offsets".to_owned())
    })?;
    let shape: Option<Vec<usize>> = entry.shape.iter().map(|&n| usize::try_from(n).ok()).collect();
    let Some((shape, values)) = shape.and_then(|shape| checked_product(&shape).map(|n| (shape, n)))
    else {
        let found = format!("shape {:?}", entry.shape);
        return Err(refuse(found, "dimensions whose product fits in memory".to_owned()));
    };
    let (begin, end) = entry.data_offsets;
    let data_len = (file.bytes.len() - data_at) as u64;
    if begin > end || end > data_len {
        let found = format!("bytes {begin}..{end}");
        return Err(refuse(found, format!("a range inside the {data_len} bytes of data")));
    }
    let (encoding, value_bytes) = encoding(&entry.dtype);
    if let Some(value_bytes) = value_bytes
        && values.checked_mul(value_bytes).is_none_or(|bytes| bytes as u64 != end - begin)
    {
        let found = format!("{} bytes", end - begin);
        let expected = format!("{shape:?} values of {}, {value_bytes} bytes each", encoding.name());
        return Err(refuse(found, expected));
    }
    let range = data_at + begin as usize..data_at + end as usize;
    Ok(RawTensor { name, file: index, encoding, shape, range })
}

/// The format of a dtype, and the bytes of one value where that is a whole number.
fn encoding(dtype: &str) -> (Encoding, Option<usize>) {
    let known = match dtype {
        "F32" => Format::F32,
        "F16" => Format::F16,
        "BF16" => Format::Bf16,
        _ => {
            let bytes = match dtype {
                "F64" | "I64" | "U64" => Some(8),
                "I32" | "U32" => Some(4),
                "I16" | "U16" => Some(2),
                "I8" | "U8" | "BOOL" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => Some(1),
                _ => None,
            };
            let advice = "safetensors are read as F32, F16 or BF16 here; use the BF16 checkpoint, \
                          or a GGUF file for a quantized model";
            return (Encoding::Foreign { name: escaped(dtype), advice }, bytes);
        }
    };
    (Encoding::Known(known), Some(known.block_bytes()))
}

/// Checks that every byte of the data belongs to exactly one tensor, as the format demands.
fn check_contiguous(file: &SourceFile, sorted: &[RawTensor], data_at: usize) -> Result<()> {
    let mut at = data_at;
    let mut previous = "the header";
    for tensor in sorted {
        if tensor.range.start != at {
            let kind = if tensor.range.start < at { "an overlap with" } else { "a gap after" };
            return Err(Error::Tensor {
                file: file.name.clone(),
                tensor: escaped(&tensor.name),
                found: format!("{kind} {}", escaped(previous)),
                expected: format!("its bytes to begin at {}", at - data_at),
            });
        }
        at = tensor.range.end;
        previous = &tensor.name;
    }
    if at != file.bytes.len() {
        let found = format!("{} bytes after the last tensor", file.bytes.len() - at);
        return Err(malformed(file, "end", found, "the file to end with its last tensor"));
    }
    Ok(())
}

fn malformed(
    file: &SourceFile,
    location: &str,
    found: impl fmt::Display,
    expected: impl fmt::Display,
) -> Error {
    Error::Malformed {
        file: file.name.clone(),
        location: location.to_owned(),
        found: found.to_string(),
        expected: expected.to_string(),
    }
}
