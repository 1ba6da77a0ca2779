//! The GGUF container: magic, keys with typed values, tensor descriptions, aligned data.

use std::collections::HashMap;
use std::ops::Range;

use super::cursor::Cursor;
use super::ggml;
use crate::error::{Error, Result, shown};
use crate::folder::SourceFile;
use crate::raw::{RawTensor, product, refuse_duplicates};
use crate::safetensors::refuse_pointer;

/// Deepest nesting of lists in lists that is followed.
const MAX_NESTING: usize = 4;
/// Longest name of a key or a tensor.
const MAX_NAME: usize = 1 << 16;
/// Most dimensions of a tensor.
const MAX_DIMS: u32 = 4;

/// A value of a key. Texts and lists stay in the file.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Flag(bool),
    Text(Range<usize>),
    List { kind: u32, count: usize, range: Range<usize> },
}

/// Ids of value types.
pub(crate) mod kind {
    pub(crate) const U8: u32 = 0;
    pub(crate) const I8: u32 = 1;
    pub(crate) const U16: u32 = 2;
    pub(crate) const I16: u32 = 3;
    pub(crate) const U32: u32 = 4;
    pub(crate) const I32: u32 = 5;
    pub(crate) const F32: u32 = 6;
    pub(crate) const BOOL: u32 = 7;
    pub(crate) const TEXT: u32 = 8;
    pub(crate) const LIST: u32 = 9;
    pub(crate) const U64: u32 = 10;
    pub(crate) const I64: u32 = 11;
    pub(crate) const F64: u32 = 12;
}

/// The keys of a file.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(super) keys: HashMap<String, Value>,
    /// Where the type and the value of each key are, in the file's order.
    pub(crate) places: Vec<(String, Range<usize>)>,
}

/// Reads a file's header and checks that its tensors lie in it side by side.
pub(crate) fn parse(file: &SourceFile, index: usize) -> Result<(Header, Vec<RawTensor>)> {
    refuse_pointer(file)?;
    let mut cursor = Cursor::new(file, 0);
    let version = version(&mut cursor)?;
    // A description has a name's length, the number of dimensions, a type and an offset; a key
    // has a name's length, a type and a byte of value.
    let tensor_count = cursor.count(24, "tensor count")?;
    let key_count = cursor.count(13, "key count")?;
    let (mut keys, mut places) = (HashMap::new(), Vec::new());
    for _ in 0..key_count {
        let name = name(&mut cursor, "name of a key")?;
        let start = cursor.at();
        let value = value(&mut cursor, &name)?;
        if keys.contains_key(&name) {
            return Err(Error::Key {
                file: file.name.clone(),
                key: shown(&name),
                found: "two keys of this name".to_owned(),
                expected: "each key once".to_owned(),
            });
        }
        places.push((name.clone(), start..cursor.at()));
        keys.insert(name, value);
    }
    let alignment = alignment(file, &keys)?;
    let mut described = Vec::new();
    for _ in 0..tensor_count {
        described.push(describe(&mut cursor, file, index)?);
    }
    let data_at = cursor.at().next_multiple_of(alignment);
    let tensors = locate(file, described, data_at, alignment)?;
    refuse_duplicates(&file.name, &tensors)?;
    Ok((Header { version, keys, places }, tensors))
}

fn version(cursor: &mut Cursor<'_>) -> Result<u32> {
    let magic = cursor.u32("magic")?;
    if magic.to_le_bytes() != *b"GGUF" {
        let found = format!("`{}`", magic.to_le_bytes().escape_ascii());
        return Err(cursor.wrong("magic", found, "`GGUF`"));
    }
    let version = cursor.u32("version")?;
    match version {
        2 | 3 => Ok(version),
        _ if (2..=3).contains(&version.swap_bytes()) => {
            let found = "a big-endian file";
            Err(cursor.wrong("version", found, "a little-endian one: convert the model again"))
        }
        _ => {
            let found = format!("version {version}");
            Err(cursor.wrong("version", found, "2 or 3: convert the model again"))
        }
    }
}

fn name(cursor: &mut Cursor<'_>, place: &str) -> Result<String> {
    let name = cursor.text(place)?;
    if name.is_empty() || name.len() > MAX_NAME {
        let found = format!("a name of {} bytes", name.len());
        return Err(cursor.wrong(place, found, format!("1 to {MAX_NAME} bytes")));
    }
    Ok(name.to_owned())
}

fn value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value> {
    let kind = cursor.u32(key)?;
    if kind == kind::TEXT {
        let at = cursor.at() + 8;
        let length = cursor.text(key)?.len();
        return Ok(Value::Text(at..at + length));
    }
    if kind == kind::LIST {
        let kind = cursor.u32(key)?;
        let (count, range) = list(cursor, key, kind, MAX_NESTING)?;
        return Ok(Value::List { kind, count, range });
    }
    let Some(size) = scalar_bytes(kind) else {
        return Err(unknown_kind(cursor, key, kind));
    };
    let bytes = cursor.scalar(size, key)?;
    scalar(kind, bytes).ok_or_else(|| cursor.wrong(key, "a byte above 1", "a bool of 0 or 1"))
}

/// Bytes of a value that is neither text nor list.
pub(super) fn scalar_bytes(kind: u32) -> Option<usize> {
    match kind {
        kind::U8 | kind::I8 | kind::BOOL => Some(1),
        kind::U16 | kind::I16 => Some(2),
        kind::U32 | kind::I32 | kind::F32 => Some(4),
        kind::U64 | kind::I64 | kind::F64 => Some(8),
        _ => None,
    }
}

/// A value from its bytes, zero-extended to eight; none for a bool of neither 0 nor 1.
///
/// # Panics
/// When the kind is not a scalar.
pub(super) fn scalar(kind: u32, bytes: [u8; 8]) -> Option<Value> {
    let wide = u64::from_le_bytes(bytes);
    Some(match kind {
        kind::U8 | kind::U16 | kind::U32 | kind::U64 => Value::Unsigned(wide),
        kind::I8 => Value::Signed((wide as i8).into()),
        kind::I16 => Value::Signed((wide as i16).into()),
        kind::I32 => Value::Signed((wide as i32).into()),
        kind::I64 => Value::Signed(wide as i64),
        kind::F32 => Value::Float(f32::from_bits(wide as u32).into()),
        kind::F64 => Value::Float(f64::from_bits(wide)),
        kind::BOOL if wide <= 1 => Value::Flag(wide == 1),
        kind::BOOL => return None,
        _ => unreachable!("callers ask scalar_bytes first"),
    })
}

fn unknown_kind(cursor: &Cursor<'_>, key: &str, kind: u32) -> Error {
    cursor.wrong(key, format!("value type {kind}"), "a type from 0 to 12")
}

/// Walks over a list: its length and where its items are.
fn list(
    cursor: &mut Cursor<'_>,
    key: &str,
    kind: u32,
    nesting: usize,
) -> Result<(usize, Range<usize>)> {
    let item_bytes = match kind {
        kind::TEXT => 8,
        kind::LIST if nesting == 0 => {
            let found = format!("lists nested deeper than {MAX_NESTING}");
            return Err(cursor.wrong(key, found, "none of these"));
        }
        kind::LIST => 12,
        _ => scalar_bytes(kind).ok_or_else(|| unknown_kind(cursor, key, kind))?,
    };
    let count = cursor.count(item_bytes, key)?;
    let start = cursor.at();
    match kind {
        kind::TEXT => {
            for _ in 0..count {
                cursor.text_bytes(key)?;
            }
        }
        kind::LIST => {
            for _ in 0..count {
                let kind = cursor.u32(key)?;
                list(cursor, key, kind, nesting - 1)?;
            }
        }
        _ => {
            cursor.skip(count, item_bytes, key)?;
        }
    }
    Ok((count, start..cursor.at()))
}

fn alignment(file: &SourceFile, keys: &HashMap<String, Value>) -> Result<usize> {
    const KEY: &str = "general.alignment";
    match keys.get(KEY) {
        None => Ok(32),
        Some(Value::Unsigned(n)) if n.is_power_of_two() && (8..=1 << 16).contains(n) => {
            Ok(*n as usize)
        }
        Some(value) => Err(Error::Key {
            file: file.name.clone(),
            key: KEY.to_owned(),
            found: super::keys::brief(value, file),
            expected: "a power of two from 8 to 65536".to_owned(),
        }),
    }
}

/// A tensor as described: its range is not known to lie in the file yet.
struct Described {
    tensor: RawTensor,
    offset: u64,
    /// None for formats of unknown geometry.
    length: Option<u64>,
}

fn describe(cursor: &mut Cursor<'_>, file: &SourceFile, index: usize) -> Result<Described> {
    let name = name(cursor, "name of a tensor")?;
    let refuse = |found: String, expected: String| Error::Tensor {
        file: file.name.clone(),
        tensor: shown(&name),
        found,
        expected,
    };
    let dims = cursor.u32(&name)?;
    if !(1..=MAX_DIMS).contains(&dims) {
        return Err(refuse(format!("{dims} dimensions"), format!("1 to {MAX_DIMS}")));
    }
    let mut shape = Vec::new();
    for _ in 0..dims {
        let dim = cursor.u64(&name)?;
        shape.push(usize::try_from(dim).ok().filter(|&dim| dim > 0).ok_or_else(|| {
            refuse(format!("a dimension of {dim}"), "dimensions above 0".to_owned())
        })?);
    }
    let (encoding, block) = ggml::encoding(cursor.u32(&name)?);
    let offset = cursor.u64(&name)?;
    let width = shape[0];
    shape.reverse();
    let Some(values) = product(&shape).filter(|&values| values <= isize::MAX as usize) else {
        let found = format!("shape {shape:?}");
        return Err(refuse(found, "dimensions whose product fits in memory".to_owned()));
    };
    let length = match block {
        Some((block_values, _)) if !width.is_multiple_of(block_values) => {
            let found = format!("rows of {width} values as {}", encoding.name());
            return Err(refuse(found, format!("a multiple of {block_values} values")));
        }
        Some((block_values, block_bytes)) => {
            Some((values / block_values) as u64).and_then(|n| n.checked_mul(block_bytes as u64))
        }
        None => None,
    };
    if block.is_some() && length.is_none() {
        let found = format!("shape {shape:?}");
        return Err(refuse(found, "values that fit in memory".to_owned()));
    }
    let tensor = RawTensor { name, file: index, encoding, shape, range: 0..0 };
    Ok(Described { tensor, offset, length })
}

/// Gives each tensor its bytes: in the file, aligned, one after the other with nothing but padding
/// between.
fn locate(
    file: &SourceFile,
    mut described: Vec<Described>,
    data_at: usize,
    alignment: usize,
) -> Result<Vec<RawTensor>> {
    let data_len = file.bytes.len().saturating_sub(data_at) as u64;
    described.sort_by_key(|described| described.offset);
    let offsets: Vec<u64> = described.iter().map(|described| described.offset).collect();
    let mut tensors = Vec::with_capacity(described.len());
    let (mut end, mut before) = (0, "the header".to_owned());
    for (i, Described { mut tensor, offset, length }) in described.into_iter().enumerate() {
        let refuse = |found: String, expected: String| Error::Tensor {
            file: file.name.clone(),
            tensor: shown(&tensor.name),
            found,
            expected,
        };
        if !offset.is_multiple_of(alignment as u64) {
            let found = format!("offset {offset}");
            return Err(refuse(found, format!("a multiple of the alignment, {alignment}")));
        }
        let next = offsets.get(i + 1).copied().unwrap_or(data_len);
        let length = length.unwrap_or(next.saturating_sub(offset));
        if offset.checked_add(length).is_none_or(|end| end > data_len) {
            let found = format!("{length} bytes at offset {offset}");
            let expected =
                format!("a range inside the {data_len} bytes of data; is the file complete?");
            return Err(refuse(found, expected));
        }
        if offset < end {
            return Err(refuse(format!("an overlap with {}", shown(&before)), after(end)));
        }
        if offset - end >= alignment as u64 {
            let found = format!("a gap of {} bytes after {}", offset - end, shown(&before));
            return Err(refuse(found, after(end)));
        }
        end = offset + length;
        tensor.range = data_at + offset as usize..data_at + end as usize;
        before.clone_from(&tensor.name);
        tensors.push(tensor);
    }
    if data_len - end >= alignment as u64 && !tensors.is_empty() {
        return Err(Error::Malformed {
            file: file.name.clone(),
            place: "end".to_owned(),
            found: format!("{} bytes after the last tensor", data_len - end),
            expected: "the file to end with its last tensor".to_owned(),
        });
    }
    Ok(tensors)
}

fn after(end: u64) -> String {
    format!("its bytes to follow at offset {end}, or after padding")
}
