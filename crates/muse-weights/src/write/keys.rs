//! Keys of a GGUF file with their values, encoded as the file has them.

use crate::gguf::kind;

/// Keys in the order they will be written; a key set again keeps its place.
#[derive(Clone, Debug, Default)]
pub struct GgufKeys(Vec<(String, Vec<u8>)>);

impl GgufKeys {
    /// No keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key.
    pub fn set<V: GgufValue + ?Sized>(&mut self, name: &str, value: &V) {
        let mut encoded = V::KIND.to_le_bytes().to_vec();
        value.put(&mut encoded);
        self.set_encoded(name, encoded);
    }

    /// Sets a key to the type and the value as a file has them.
    pub(crate) fn set_encoded(&mut self, name: &str, encoded: Vec<u8>) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, value)) => *value = encoded,
            None => self.0.push((name.to_owned(), encoded)),
        }
    }

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

/// A value of a GGUF key.
pub trait GgufValue {
    /// The id of its type.
    const KIND: u32;
    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);
}

impl GgufValue for u32 {
    const KIND: u32 = kind::U32;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
}

impl GgufValue for i32 {
    const KIND: u32 = kind::I32;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
}

impl GgufValue for f32 {
    const KIND: u32 = kind::F32;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
}

impl GgufValue for bool {
    const KIND: u32 = kind::BOOL;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl GgufValue for str {
    const KIND: u32 = kind::TEXT;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.len() as u64).to_le_bytes());
        out.extend_from_slice(self.as_bytes());
    }
}

impl GgufValue for String {
    const KIND: u32 = kind::TEXT;
    fn put(&self, out: &mut Vec<u8>) {
        self.as_str().put(out);
    }
}

impl<T: GgufValue> GgufValue for [T] {
    const KIND: u32 = kind::LIST;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&T::KIND.to_le_bytes());
        out.extend_from_slice(&(self.len() as u64).to_le_bytes());
        self.iter().for_each(|item| item.put(out));
    }
}
