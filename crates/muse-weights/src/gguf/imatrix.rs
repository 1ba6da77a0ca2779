//! The container of an importance matrix (imatrix): a GGUF file of F32 tensors.

use std::path::Path;

use muse_core::quant::Format;

use super::header::parse;
use crate::error::{Error, Result, escaped};
use crate::folder::SourceFile;
use crate::map::Bytes;
use crate::raw::{Encoding, RawTensor};

/// An open importance matrix.
pub(crate) struct ImatrixFile {
    file: SourceFile,
    tensors: Vec<RawTensor>,
}

impl ImatrixFile {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = SourceFile { name: path.display().to_string(), bytes: Bytes::map(path)? };
        if !file.bytes.starts_with(b"GGUF") {
            return Err(Error::Malformed {
                file: file.name,
                location: "magic".to_owned(),
                found: "no GGUF magic".to_owned(),
                expected: "an importance matrix in GGUF; convert the older format with \
                           `llama-imatrix --in-file OLD -o NEW.gguf`"
                    .to_owned(),
            });
        }
        let (_, tensors) = parse(&file, 0)?;
        let imatrix = Self { file, tensors };
        if !imatrix.tensors.iter().any(|tensor| tensor.name.ends_with(".in_sum2")) {
            return Err(Error::Malformed {
                file: imatrix.file.name,
                location: "tensors".to_owned(),
                found: "none named `*.in_sum2`".to_owned(),
                expected: "an importance matrix, as llama-imatrix writes it".to_owned(),
            });
        }
        Ok(imatrix)
    }

    pub(crate) fn name(&self) -> &str {
        &self.file.name
    }

    /// As [`SourceFile::check_unchanged`].
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        self.file.check_unchanged()
    }

    /// The values of the tensors whose names end in `ending`, by the name before it.
    pub(crate) fn floats(&self, ending: &str) -> Result<Vec<(String, Vec<f32>)>> {
        let named = |tensor: &RawTensor| {
            let name = tensor.name.strip_suffix(ending)?.to_owned();
            Some(self.values(tensor).map(|values| (name, values)))
        };
        self.tensors.iter().filter_map(named).collect()
    }

    /// The values of a tensor.
    pub(crate) fn float(&self, name: &str) -> Result<Option<Vec<f32>>> {
        let tensor = self.tensors.iter().find(|tensor| tensor.name == name);
        tensor.map(|tensor| self.values(tensor)).transpose()
    }

    fn values(&self, tensor: &RawTensor) -> Result<Vec<f32>> {
        if tensor.encoding != Encoding::Known(Format::F32) {
            return Err(Error::Tensor {
                file: self.file.name.clone(),
                tensor: escaped(&tensor.name),
                found: tensor.encoding.name().to_owned(),
                expected: "F32".to_owned(),
            });
        }
        let words = self.file.bytes[tensor.range.clone()].as_chunks::<4>().0;
        Ok(words.iter().map(|word| f32::from_le_bytes(*word)).collect())
    }
}
