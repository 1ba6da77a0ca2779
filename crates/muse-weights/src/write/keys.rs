//! The keys of a GGUF file to be written, with their values in the encoding of the file.

use crate::gguf::value_type;

/// Keys in the order in which they are written. Setting a key again changes its value only.
#[derive(Clone, Debug, Default)]
pub struct GgufKeys(Vec<(String, Vec<u8>)>);

impl GgufKeys {
    /// No keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key.
    pub fn set<V: GgufValue + ?Sized>(&mut self, name: &str, value: &V) {
        let mut encoded = V::TYPE_ID.to_le_bytes().to_vec();
        value.put(&mut encoded);
        self.set_encoded(name, encoded);
    }

    /// Sets a key to a type and value in the encoding of the file.
    pub(crate) fn set_encoded(&mut self, name: &str, encoded: Vec<u8>) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, value)) => *value = encoded,
            None => self.0.push((name.to_owned(), encoded)),
        }
    }

    /// Appends all keys in the encoding of the file.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        for (name, encoded) in &self.0 {
            name.as_str().put(out);
            out.extend_from_slice(encoded);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// A type that can be the value of a GGUF key.
pub trait GgufValue {
    /// The id of its type.
    const TYPE_ID: u32;
    /// Appends the value in the encoding of the file.
    fn put(&self, out: &mut Vec<u8>);
}

impl GgufValue for u32 {
    const TYPE_ID: u32 = value_type::U32;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
}

impl GgufValue for i32 {
    const TYPE_ID: u32 = value_type::I32;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
}

impl GgufValue for f32 {
    const TYPE_ID: u32 = value_type::F32;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
}

impl GgufValue for bool {
    const TYPE_ID: u32 = value_type::BOOL;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl GgufValue for str {
    const TYPE_ID: u32 = value_type::STRING;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.len() as u64).to_le_bytes());
        out.extend_from_slice(self.as_bytes());
    }
}

impl GgufValue for String {
    const TYPE_ID: u32 = value_type::STRING;
    fn put(&self, out: &mut Vec<u8>) {
        self.as_str().put(out);
    }
}

impl<T: GgufValue> GgufValue for [T] {
    const TYPE_ID: u32 = value_type::ARRAY;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&T::TYPE_ID.to_le_bytes());
        out.extend_from_slice(&(self.len() as u64).to_le_bytes());
        self.iter().for_each(|item| item.put(out));
    }
}
