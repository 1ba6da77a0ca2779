//! Writes a GGUF file: the header at once, then the bytes of one tensor after the other, under
//! another name until the file is complete.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use muse_core::quant::Format;

use super::keys::{GgufKeys, GgufValue};
use super::new_file::NewFile;
use crate::error::{Error, Result};
use crate::gguf;

/// Alignment of tensors, in bytes: the default of the format.
const ALIGNMENT: usize = 32;

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufTensor {
    /// Its name.
    pub name: String,
    /// Format of its bytes.
    pub format: Format,
    /// Its shape, outermost dimension first. The last one is a multiple of the quant block.
    pub shape: Vec<usize>,
}

impl GgufTensor {
    /// Bytes of its values.
    pub fn bytes(&self) -> usize {
        self.format.bytes_for(self.shape.iter().product())
    }
}

/// Writes a GGUF file. Until [`GgufWriter::finish`] the file has another name in the same folder. A
/// writer that is dropped before removes it.
#[derive(Debug)]
pub struct GgufWriter {
    path: PathBuf,
    file: NewFile,
    /// Bytes that the current tensor still needs.
    left: usize,
    /// Lengths of the tensors that follow, the last one first.
    lengths: Vec<usize>,
    written: u64,
}

impl GgufWriter {
    /// Begins a file with these keys and tensors.
    ///
    /// # Errors
    /// [`Error::Write`] when the system refuses.
    ///
    /// # Panics
    /// When a tensor's rows are not whole quant blocks.
    pub fn create(path: &Path, keys: &GgufKeys, tensors: &[GgufTensor]) -> Result<Self> {
        let mut header = b"GGUF".to_vec();
        3_u32.put(&mut header);
        header.extend_from_slice(&(tensors.len() as u64).to_le_bytes());
        header.extend_from_slice(&(keys.len() as u64).to_le_bytes());
        keys.put(&mut header);
        let mut offset = 0;
        for tensor in tensors {
            let width = tensor.shape.last().copied().unwrap_or(0);
            let fits = width > 0 && width.is_multiple_of(tensor.format.block_values());
            assert!(fits, "rows of {width} values as {} in {}", tensor.format, tensor.name);
            tensor.name.put(&mut header);
            (tensor.shape.len() as u32).put(&mut header);
            for &dim in tensor.shape.iter().rev() {
                header.extend_from_slice(&(dim as u64).to_le_bytes());
            }
            gguf::format_id(tensor.format).put(&mut header);
            header.extend_from_slice(&(offset as u64).to_le_bytes());
            offset += tensor.bytes().next_multiple_of(ALIGNMENT);
        }
        header.resize(header.len().next_multiple_of(ALIGNMENT), 0);
        let file = NewFile::create(path).map_err(|source| write_error(path, source))?;
        let mut writer = Self {
            path: path.to_owned(),
            file,
            left: header.len(),
            lengths: tensors.iter().rev().map(GgufTensor::bytes).collect(),
            written: 0,
        };
        writer.write(&header)?;
        Ok(writer)
    }

    /// Writes the next bytes of the current tensor.
    ///
    /// # Errors
    /// [`Error::Write`] when the system refuses.
    ///
    /// # Panics
    /// When they are more than the tensor still needs.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() <= self.left, "{} bytes, {} are left", bytes.len(), self.left);
        self.put(bytes)?;
        self.left -= bytes.len();
        if self.left == 0 {
            let padding = self.written.next_multiple_of(ALIGNMENT as u64) - self.written;
            self.put(&[0; ALIGNMENT][..padding as usize])?;
            self.left = self.lengths.pop().unwrap_or(0);
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|source| write_error(&self.path, source))
    }

    /// Renames the file once its bytes are on the disk. Returns their number.
    ///
    /// # Errors
    /// [`Error::Write`] when the system refuses, or the name is in use by now.
    ///
    /// # Panics
    /// When tensors are missing.
    pub fn finish(self) -> Result<u64> {
        assert!(self.left == 0 && self.lengths.is_empty(), "`finish` after the last tensor");
        let failed = |source| write_error(&self.path, source);
        self.file.finish().map_err(failed)?;
        Ok(self.written)
    }
}

fn write_error(path: &Path, source: io::Error) -> Error {
    Error::Write { file: path.display().to_string(), source: Arc::new(source) }
}
