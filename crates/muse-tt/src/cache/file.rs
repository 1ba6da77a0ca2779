//! A file of the cache: what it holds, a checksum, and the matrix as the device takes it.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use muse_core::{Error, Result};
use sha2::{Digest, Sha256};

use super::failed;
use crate::weight::Layout;

/// Says what the file is and how it is laid out.
const MAGIC: &[u8; 8] = b"musett01";
/// Behind the magic: a checksum of the name, the layout and the matrix.
const SUM: usize = 32;
const HEAD: usize = MAGIC.len() + SUM;

/// Writes a file under another name, which is given its own when it is whole.
pub(super) struct Writer {
    path: PathBuf,
    partial: PathBuf,
    file: File,
    sum: Sha256,
}

impl Writer {
    pub(super) fn new(path: &Path, name: &str, layout: Layout) -> Result<Self> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let mut file = File::create(&partial).map_err(|error| failed(&partial, &error))?;
        file.write_all(&[0; HEAD]).map_err(|error| failed(&partial, &error))?;
        Ok(Self { path: path.to_owned(), partial, file, sum: begun(name, layout) })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.sum.update(bytes);
        self.file.write_all(bytes).map_err(|error| failed(&self.partial, &error))
    }

    pub(super) fn finish(mut self) -> Result<()> {
        let sum = self.sum.finalize();
        let mut end = || {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(MAGIC)?;
            self.file.write_all(&sum)?;
            // The name must not outlive a power cut that the bytes do not.
            self.file.sync_all()?;
            fs::rename(&self.partial, &self.path)
        };
        end().map_err(|error| failed(&self.partial, &error))
    }
}

/// The matrix of a file.
pub(super) fn read(path: &Path, name: &str, layout: Layout) -> Result<Vec<u8>> {
    let broken = |found: String| {
        Error::Corrupt(format!(
            "{}: {found}, expected {} bytes of {name} as {} with their checksum; delete the file \
             and start again, it is made anew from the checkpoint",
            path.display(),
            layout.bytes(),
            layout.format.name()
        ))
    };
    let mut bytes = fs::read(path).map_err(|error| broken(error.to_string()))?;
    if bytes.len() != HEAD + layout.bytes() {
        return Err(broken(format!("{} bytes", bytes.len())));
    }
    let (head, matrix) = bytes.split_at(HEAD);
    if head[..MAGIC.len()] != MAGIC[..] {
        return Err(broken("another kind of file".to_owned()));
    }
    let mut sum = begun(name, layout);
    sum.update(matrix);
    if head[MAGIC.len()..] != sum.finalize()[..] {
        return Err(broken("bytes that were not written".to_owned()));
    }
    bytes.drain(..HEAD);
    Ok(bytes)
}

/// A checksum that has seen what the matrix is.
fn begun(name: &str, layout: Layout) -> Sha256 {
    let mut sum = Sha256::new();
    sum.update(layout.format.name());
    for number in [name.len(), layout.rows, layout.cols] {
        sum.update((number as u64).to_le_bytes());
    }
    sum.update(name);
    sum
}
