//! Parses the GGUF container: magic, keys with typed values, tensor descriptions, aligned data.

use std::collections::HashMap;
use std::ops::Range;

use super::cursor::Cursor;
use super::ggml;
use crate::error::{Error, Result, escaped};
use crate::folder::SourceFile;
use crate::raw::{RawTensor, checked_product, refuse_duplicates};
use crate::safetensors::refuse_pointer;

/// Deepest nesting of arrays in arrays that is accepted.
const MAX_NESTING: usize = 4;
/// Longest name of a key or a tensor, in bytes.
const MAX_NAME: usize = 1 << 16;
/// Most dimensions of a tensor.
const MAX_DIMS: u32 = 4;

/// The value of a key. Strings and arrays stay in the file: their bytes are `range`.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    String(Range<usize>),
    Array { item_type: u32, count: usize, range: Range<usize> },
}

impl Value {
    /// The value as messages show it.
    pub(super) fn describe(&self, file: &SourceFile) -> String {
        match self {
            Self::Unsigned(n) => n.to_string(),
            Self::Signed(n) => n.to_string(),
            Self::Float(n) => n.to_string(),
            Self::Bool(flag) => flag.to_string(),
            Self::String(range) => {
                let string = String::from_utf8_lossy(&file.bytes[range.clone()]);
                format!("the string `{}`", escaped(&string))
            }
            Self::Array { count, .. } => format!("an array of {count}"),
        }
    }
}

/// The ids of value types.
pub(crate) mod value_type {
    pub(crate) const U8: u32 = 0;
    pub(crate) const I8: u32 = 1;
    pub(crate) const U16: u32 = 2;
    pub(crate) const I16: u32 = 3;
    pub(crate) const U32: u32 = 4;
    pub(crate) const I32: u32 = 5;
    pub(crate) const F32: u32 = 6;
    pub(crate) const BOOL: u32 = 7;
    pub(crate) const STRING: u32 = 8;
    pub(crate) const ARRAY: u32 = 9;
    pub(crate) const U64: u32 = 10;
    pub(crate) const I64: u32 = 11;
    pub(crate) const F64: u32 = 12;
}

/// The version and the keys of a file.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(super) keys: HashMap<String, Value>,
    /// The bytes of each key's type and value, in the order of the file.
    pub(crate) key_ranges: Vec<(String, Range<usize>)>,
}

/// Reads a file's header and checks that its tensors lie inside the file, one after the other.
pub(crate) fn parse(file: &SourceFile, index: usize) -> Result<(Header, Vec<RawTensor>)> {
    refuse_pointer(file)?;
    let mut cursor = Cursor::new(file, 0);
    let version = version(&mut cursor)?;
    // The smallest description of a tensor is 24 bytes (name length, dimension count, type and
    // offset), the smallest key 13 (name length, type and one byte of value).
    let tensor_count = cursor.count(24, "tensor count")?;
    let key_count = cursor.count(13, "key count")?;
    let (mut keys, mut key_ranges) = (HashMap::new(), Vec::new());
    for _ in 0..key_count {
        let bytes = name(&mut cursor, "name of a key")?;
        let start = cursor.at();
        let value = value(&mut cursor, &String::from_utf8_lossy(bytes))?;
        // No setting has a name that is not UTF-8.
        let Ok(name) = str::from_utf8(bytes).map(str::to_owned) else { continue };
        if keys.contains_key(&name) {
            return Err(Error::Key {
                file: file.name.clone(),
                key: escaped(&name),
                found: "two keys of this name".to_owned(),
                expected: "each key once".to_owned(),
            });
        }
        key_ranges.push((name.clone(), start..cursor.at()));
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
    Ok((Header { version, keys, key_ranges }, tensors))
}

fn version(cursor: &mut Cursor<'_>) -> Result<u32> {
    let magic = cursor.u32("magic")?;
    if magic.to_le_bytes() != *b"GGUF" {
        let found = format!("`{}`", magic.to_le_bytes().escape_ascii());
        return Err(cursor.malformed("magic", found, "`GGUF`"));
    }
    let version = cursor.u32("version")?;
    match version {
        2 | 3 => Ok(version),
        _ if (2..=3).contains(&version.swap_bytes()) => {
            let found = "a big-endian file";
            Err(cursor.malformed("version", found, "a little-endian one: convert the model again"))
        }
        _ => {
            let found = format!("version {version}");
            Err(cursor.malformed("version", found, "2 or 3: convert the model again"))
        }
    }
}

fn name<'a>(cursor: &mut Cursor<'a>, field: &str) -> Result<&'a [u8]> {
    let name = cursor.string(field)?;
    if name.is_empty() || name.len() > MAX_NAME {
        let found = format!("a name of {} bytes", name.len());
        return Err(cursor.malformed(field, found, format!("1 to {MAX_NAME} bytes")));
    }
    Ok(name)
}

fn value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value> {
    let type_id = cursor.u32(key)?;
    if type_id == value_type::STRING {
        return Ok(Value::String(cursor.string_range(key)?));
    }
    if type_id == value_type::ARRAY {
        let item_type = cursor.u32(key)?;
        let (count, range) = array(cursor, key, item_type, MAX_NESTING)?;
        return Ok(Value::Array { item_type, count, range });
    }
    let Some(size) = scalar_bytes(type_id) else {
        return Err(unknown_type(cursor, key, type_id));
    };
    let bytes = cursor.scalar(size, key)?;
    Ok(scalar(type_id, bytes))
}

/// Bytes of a scalar value; none for strings and arrays.
pub(super) fn scalar_bytes(type_id: u32) -> Option<usize> {
    match type_id {
        value_type::U8 | value_type::I8 | value_type::BOOL => Some(1),
        value_type::U16 | value_type::I16 => Some(2),
        value_type::U32 | value_type::I32 | value_type::F32 => Some(4),
        value_type::U64 | value_type::I64 | value_type::F64 => Some(8),
        _ => None,
    }
}

/// A value from its bytes, zero-extended to eight. Every bool but 0 is true.
///
/// # Panics
/// When the type is not a scalar.
pub(super) fn scalar(type_id: u32, bytes: [u8; 8]) -> Value {
    let wide = u64::from_le_bytes(bytes);
    match type_id {
        value_type::U8 | value_type::U16 | value_type::U32 | value_type::U64 => {
            Value::Unsigned(wide)
        }
        value_type::I8 => Value::Signed((wide as i8).into()),
        value_type::I16 => Value::Signed((wide as i16).into()),
        value_type::I32 => Value::Signed((wide as i32).into()),
        value_type::I64 => Value::Signed(wide as i64),
        value_type::F32 => Value::Float(f32::from_bits(wide as u32).into()),
        value_type::F64 => Value::Float(f64::from_bits(wide)),
        value_type::BOOL => Value::Bool(wide != 0),
        _ => unreachable!("callers ask scalar_bytes first"),
    }
}

fn unknown_type(cursor: &Cursor<'_>, key: &str, type_id: u32) -> Error {
    cursor.malformed(key, format!("value type {type_id}"), "a type from 0 to 12")
}

/// Skips an array. Returns the number of its items and their bytes.
fn array(
    cursor: &mut Cursor<'_>,
    key: &str,
    type_id: u32,
    nesting: usize,
) -> Result<(usize, Range<usize>)> {
    let item_bytes = match type_id {
        value_type::STRING => 8,
        value_type::ARRAY if nesting == 0 => {
            let found = format!("arrays nested deeper than {MAX_NESTING}");
            return Err(cursor.malformed(key, found, format!("at most {MAX_NESTING} levels")));
        }
        value_type::ARRAY => 12,
        _ => scalar_bytes(type_id).ok_or_else(|| unknown_type(cursor, key, type_id))?,
    };
    let count = cursor.count(item_bytes, key)?;
    let start = cursor.at();
    match type_id {
        value_type::STRING => {
            for _ in 0..count {
                cursor.string_range(key)?;
            }
        }
        value_type::ARRAY => {
            for _ in 0..count {
                let type_id = cursor.u32(key)?;
                array(cursor, key, type_id, nesting - 1)?;
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
            found: value.describe(file),
            expected: "a power of two from 8 to 65536".to_owned(),
        }),
    }
}

/// A tensor description. Its range is not yet checked against the file.
struct Described {
    tensor: RawTensor,
    offset: u64,
    /// Bytes; none for formats whose block size is not known.
    length: Option<u64>,
}

fn describe(cursor: &mut Cursor<'_>, file: &SourceFile, index: usize) -> Result<Described> {
    const NAME: &str = "name of a tensor";
    let name = str::from_utf8(name(cursor, NAME)?);
    let name = name.map_err(|error| cursor.malformed(NAME, error, "UTF-8"))?.to_owned();
    let refuse = |found: String, expected: String| Error::Tensor {
        file: file.name.clone(),
        tensor: escaped(&name),
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
    let Some(values) = checked_product(&shape).filter(|&values| values <= isize::MAX as usize)
    else {
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

/// Assigns each tensor its byte range: inside the file, aligned, one after the other with nothing
/// but padding between.
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
    let (mut end, mut previous) = (0, "the header".to_owned());
    for (i, Described { mut tensor, offset, length }) in described.into_iter().enumerate() {
        let refuse = |found: String, expected: String| Error::Tensor {
            file: file.name.clone(),
            tensor: escaped(&tensor.name),
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
            return Err(refuse(
                format!("an overlap with {}", escaped(&previous)),
                expected_offset(end),
            ));
        }
        if offset - end >= alignment as u64 {
            let found = format!("a gap of {} bytes after {}", offset - end, escaped(&previous));
            return Err(refuse(found, expected_offset(end)));
        }
        end = offset + length;
        tensor.range = data_at + offset as usize..data_at + end as usize;
        previous.clone_from(&tensor.name);
        tensors.push(tensor);
    }
    // Bytes behind the last tensor are padding of any length, as in llama.cpp.
    Ok(tensors)
}

fn expected_offset(end: u64) -> String {
    format!("its bytes to follow at offset {end}, or after padding")
}
