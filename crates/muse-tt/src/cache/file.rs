//! A file of the weight cache: a magic number, a checksum, and the encoded weight.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use muse_core::{Error, Result};
use sha2::{Digest, Sha256};

use crate::error::device_error;
use crate::weight::WeightLayout;

/// Identifies the file and the version of its layout.
const MAGIC: &[u8; 8] = b"musett01";
/// Bytes of the checksum behind the magic number: SHA-256 of the name, the layout and the weight.
const CHECKSUM: usize = 32;
const HEADER: usize = MAGIC.len() + CHECKSUM;

/// Writes a file under a temporary name and renames it when it is complete.
pub(super) struct Writer {
    path: PathBuf,
    partial: PathBuf,
    file: File,
    checksum: Sha256,
}

impl Writer {
    pub(super) fn new(path: &Path, name: &str, layout: WeightLayout) -> Result<Self> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let mut file = File::create(&partial).map_err(|error| cache_error(&partial, &error))?;
        file.write_all(&[0; HEADER]).map_err(|error| cache_error(&partial, &error))?;
        Ok(Self { path: path.to_owned(), partial, file, checksum: checksum_of(name, layout) })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.checksum.update(bytes);
        self.file.write_all(bytes).map_err(|error| cache_error(&self.partial, &error))
    }

    pub(super) fn finish(mut self) -> Result<()> {
        let checksum = self.checksum.finalize();
        let mut complete = || {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(MAGIC)?;
            self.file.write_all(&checksum)?;
            // After a power cut, a file with its final name must be complete.
            self.file.sync_all()?;
            fs::rename(&self.partial, &self.path)
        };
        complete().map_err(|error| cache_error(&self.partial, &error))
    }
}

/// Reads the weight of a file.
pub(super) fn read(path: &Path, name: &str, layout: WeightLayout) -> Result<Vec<u8>> {
    let broken = |found: String| {
        Error::Corrupt(format!(
            "{}: {found}, expected {} bytes of {name} as {} with their checksum; delete the file \
             and start again, it is converted again from the checkpoint",
            path.display(),
            layout.bytes(),
            layout.format.name()
        ))
    };
    let mut bytes = fs::read(path).map_err(|error| broken(error.to_string()))?;
    if bytes.len() != HEADER + layout.bytes() {
        return Err(broken(format!("{} bytes", bytes.len())));
    }
    let (header, weight) = bytes.split_at(HEADER);
    if header[..MAGIC.len()] != MAGIC[..] {
        return Err(broken("another kind of file".to_owned()));
    }
    let mut checksum = checksum_of(name, layout);
    checksum.update(weight);
    if header[MAGIC.len()..] != checksum.finalize()[..] {
        return Err(broken("bytes that do not match the checksum".to_owned()));
    }
    bytes.drain(..HEADER);
    Ok(bytes)
}

/// A checksum that covers the name and the layout, to be continued with the weight.
fn checksum_of(name: &str, layout: WeightLayout) -> Sha256 {
    let mut checksum = Sha256::new();
    checksum.update(layout.format.name());
    for number in [name.len(), layout.rows, layout.cols] {
        checksum.update((number as u64).to_le_bytes());
    }
    checksum.update(name);
    checksum
}

/// An error of the cache folder, which the operator has to repair.
pub(super) fn cache_error(path: &Path, error: &io::Error) -> Error {
    device_error(
        &format!("keeping converted weights in {}", path.display()),
        format!("{error}; make room there, or choose another folder"),
    )
}
