//! Reads the reference outputs under `tests/golden`. Independent of the crates under test, so that
//! a fault in their reader cannot hide itself.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The folder `tests/golden`.
pub fn golden_dir() -> PathBuf {
    root().join("tests/golden")
}

/// The folder of the embedded checkpoint `muse-nano`: `target` and `assistant`.
pub fn nano_dir() -> PathBuf {
    root().join("crates/muse-serve/assets/nano")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// A tensor: its shape and its values.
pub type Tensor<T> = (Vec<usize>, Vec<T>);

/// Tensors of a safetensors file of reference outputs.
pub struct Golden {
    file: PathBuf,
    floats: HashMap<String, Tensor<f32>>,
    ints: HashMap<String, Tensor<i32>>,
    bytes: HashMap<String, Tensor<u8>>,
}

impl Golden {
    /// Opens a file below `tests/golden`.
    ///
    /// # Panics
    /// When it cannot be read: a golden is part of the tree.
    pub fn open(name: &str) -> Self {
        Self::open_path(&golden_dir().join(name))
    }

    /// Opens a file anywhere.
    pub fn open_path(file: &Path) -> Self {
        let bytes = std::fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let header_len = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
        let data = &bytes[8 + header_len..];
        let header: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&bytes[8..8 + header_len]).expect("a JSON header");
        let mut golden = Self {
            file: file.to_owned(),
            floats: HashMap::new(),
            ints: HashMap::new(),
            bytes: HashMap::new(),
        };
        for (name, tensor) in header.into_iter().filter(|(name, _)| name != "__metadata__") {
            let numbers = |key: &str| -> Vec<usize> {
                let list = tensor[key].as_array().expect("a list");
                list.iter().map(|n| n.as_u64().expect("a number") as usize).collect()
            };
            let (shape, range) = (numbers("shape"), numbers("data_offsets"));
            let words = data[range[0]..range[1]].as_chunks::<4>().0;
            match tensor["dtype"].as_str() {
                Some("F32") => {
                    let values = words.iter().map(|w| f32::from_le_bytes(*w)).collect();
                    golden.floats.insert(name, (shape, values));
                }
                Some("I32") => {
                    let values = words.iter().map(|w| i32::from_le_bytes(*w)).collect();
                    golden.ints.insert(name, (shape, values));
                }
                Some("U8") => {
                    golden.bytes.insert(name, (shape, data[range[0]..range[1]].to_vec()));
                }
                _ => {}
            }
        }
        golden
    }

    /// Shape and values of a float tensor.
    pub fn floats(&self, name: &str) -> &Tensor<f32> {
        self.floats.get(name).unwrap_or_else(|| panic!("{}: no f32 {name}", self.file.display()))
    }

    /// Shape and values of an integer tensor.
    pub fn ints(&self, name: &str) -> &Tensor<i32> {
        self.ints.get(name).unwrap_or_else(|| panic!("{}: no i32 {name}", self.file.display()))
    }

    /// Shape and values of a tensor of bytes, such as pixels.
    pub fn bytes(&self, name: &str) -> &Tensor<u8> {
        self.bytes.get(name).unwrap_or_else(|| panic!("{}: no u8 {name}", self.file.display()))
    }

    /// Token ids.
    pub fn tokens(&self, name: &str) -> Vec<muse_core::contract::Token> {
        self.ints(name).1.iter().map(|&id| muse_core::contract::Token(id as u32)).collect()
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .floats
            .keys()
            .chain(self.ints.keys())
            .chain(self.bytes.keys())
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        names
    }
}
