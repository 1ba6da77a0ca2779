//! The files of a folder: one for each KV block, named by the hash of its prefix, verified when
//! read, removed least recently used first. A block that cannot be read or written is dropped; that
//! is never an error. A folder is used only if it is empty or its marker says that it holds KV
//! blocks, and only files with a name of a KV block are ever removed.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use muse_core::contract::PrefixHash;
use muse_core::hash::hash64;
use muse_core::{Error, Result};

use super::marker::{Marker, OpenError};

const MAGIC: &[u8; 8] = b"MUSEKV1\n";
/// Bytes before those of the KV block: magic, prefix hash, checksum.
pub(super) const HEAD: usize = 8 + 16 + 8;
const EXTENSION: &str = ".kv";
/// Follows the extension while the file is being written.
const TEMPORARY: &str = ".tmp";

/// A folder of KV blocks that no other process uses.
pub(super) struct Store {
    folder: PathBuf,
    root: PrefixHash,
    max_bytes: u64,
    index: Mutex<Index>,
    /// Whether the last write failed: a full disk is logged once, not for every block.
    pub(super) failing: AtomicBool,
    /// Keeps the folder locked.
    _marker: Marker,
}

#[derive(Default)]
pub(super) struct Index {
    pub(super) files: HashMap<PrefixHash, Entry>,
    pub(super) bytes: u64,
    /// Number of uses so far; orders entries by their last use.
    clock: u64,
}

pub(super) struct Entry {
    bytes: u64,
    used: u64,
}

impl Store {
    /// As [`super::KvDisk::open`].
    pub(super) fn open(folder: &Path, max_bytes: u64, identity: u64) -> Result<Self> {
        let refuse = |error: io::Error| {
            Error::Invalid(format!(
                "--kv-disk {}: {error}; name a folder that can be written",
                folder.display()
            ))
        };
        fs::create_dir_all(folder).map_err(refuse)?;
        let marker = Marker::open(folder).map_err(|error| match error {
            OpenError::Io(error) => refuse(error),
            OpenError::Refused(why) => {
                Error::Invalid(format!("--kv-disk {}: {why}", folder.display()))
            }
        })?;
        let index = Index::read(folder).map_err(refuse)?;
        let salt = marker.salt();
        let store = Self {
            folder: folder.to_owned(),
            root: PrefixHash([hash64(salt[0], identity), hash64(salt[1], !identity)]),
            max_bytes,
            index: Mutex::new(index),
            failing: AtomicBool::new(false),
            _marker: marker,
        };
        store.shrink(&mut store.lock());
        Ok(store)
    }

    pub(super) fn root(&self) -> PrefixHash {
        self.root
    }

    /// Ignores poisoning: the index is consistent after every statement. Not held while files are
    /// read or written.
    pub(super) fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn path(&self, hash: PrefixHash) -> PathBuf {
        self.folder.join(file_name(hash))
    }

    /// Removes least recently used blocks until the rest fits.
    fn shrink(&self, index: &mut Index) {
        while index.bytes > self.max_bytes {
            let oldest = index.files.iter().min_by_key(|(_, entry)| entry.used);
            let Some((&hash, _)) = oldest else { break };
            self.forget(index, hash);
        }
    }

    fn forget(&self, index: &mut Index, hash: PrefixHash) {
        if let Some(entry) = index.files.remove(&hash) {
            index.bytes -= entry.bytes;
        }
        // It may be gone already.
        let _ = fs::remove_file(self.path(hash));
    }

    /// Whether a KV block of so many bytes should be written. One that is there already, with
    /// its window block if this one has one, counts as used.
    pub(super) fn needs(&self, hash: PrefixHash, bytes: usize) -> bool {
        let size = (HEAD + bytes) as u64;
        let mut index = self.lock();
        let used = index.tick();
        match index.files.get_mut(&hash) {
            Some(entry) if entry.bytes >= size => {
                entry.used = used;
                false
            }
            _ => size <= self.max_bytes,
        }
    }

    /// Writes a KV block that [`Store::needs`] asked for.
    pub(super) fn put(&self, hash: PrefixHash, bytes: &[u8]) {
        let written = self.write(hash, bytes);
        let failed = self.failing.swap(written.is_err(), Ordering::Relaxed);
        let mut index = self.lock();
        // The file that was there is overwritten, or removed below.
        if let Some(entry) = index.files.remove(&hash) {
            index.bytes -= entry.bytes;
        }
        match written {
            Ok(()) => {
                let (bytes, used) = ((HEAD + bytes.len()) as u64, index.tick());
                index.files.insert(hash, Entry { bytes, used });
                index.bytes += bytes;
                self.shrink(&mut index);
            }
            Err(error) => {
                self.forget(&mut index, hash);
                if !failed {
                    let folder = self.folder.display();
                    tracing::warn!(
                        "--kv-disk {folder}: {error}; KV blocks are dropped until this ends"
                    );
                }
            }
        }
    }

    /// Writes a temporary file and renames it: a reader finds the whole block or none.
    fn write(&self, hash: PrefixHash, bytes: &[u8]) -> io::Result<()> {
        let temporary = self.folder.join(file_name(hash) + TEMPORARY);
        let outcome = write_block(&temporary, hash, bytes)
            .and_then(|()| fs::rename(&temporary, self.path(hash)));
        if outcome.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        outcome
    }

    /// Replaces `out` by a stored KV block. False when there is none.
    pub(super) fn get(&self, hash: PrefixHash, out: &mut Vec<u8>) -> bool {
        {
            let mut index = self.lock();
            let used = index.tick();
            let Some(entry) = index.files.get_mut(&hash) else { return false };
            entry.used = used;
        }
        match read_block(&self.path(hash), hash, out) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!("--kv-disk {}: {error}; dropped", self.path(hash).display());
                self.forget(&mut self.lock(), hash);
                false
            }
        }
    }
}

impl Index {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Lists the KV blocks of a folder, least recently written first. Removes temporary files of
    /// interrupted writes. Everything else is left alone.
    fn read(folder: &Path) -> io::Result<Self> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let (Some(name), true) = (name.to_str(), entry.file_type()?.is_file()) else {
                continue;
            };
            if let Some(hash) = parse_name(name) {
                let metadata = entry.metadata()?;
                let age = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                found.push((age, hash, metadata.len()));
            } else if name.strip_suffix(TEMPORARY).and_then(parse_name).is_some() {
                fs::remove_file(entry.path())?;
            }
        }
        found.sort_unstable();
        let mut index = Self::default();
        for (_, hash, bytes) in found {
            let used = index.tick();
            index.bytes += bytes;
            index.files.insert(hash, Entry { bytes, used });
        }
        Ok(index)
    }
}

/// The name of a KV block's file: 32 lower-case hexadecimal digits and the extension.
pub(super) fn file_name(hash: PrefixHash) -> String {
    format!("{:016x}{:016x}{EXTENSION}", hash.0[0], hash.0[1])
}

/// The hash that [`file_name`] made this name of.
fn parse_name(name: &str) -> Option<PrefixHash> {
    let (high, low) = name.strip_suffix(EXTENSION)?.split_at_checked(16)?;
    let lane = |hex| u64::from_str_radix(hex, 16).ok();
    let hash = PrefixHash([lane(high)?, lane(low)?]);
    // Refuses signs, upper case and other lengths, which the parser takes.
    (file_name(hash) == name).then_some(hash)
}

fn checksum(hash: PrefixHash, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = hash64(hash.0[0], hash.0[1] ^ bytes.len() as u64);
    for word in words {
        sum = (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sum ^= sum >> 29;
    }
    rest.iter().fold(sum, |sum, &byte| hash64(sum, u64::from(byte)))
}

fn write_block(path: &Path, hash: PrefixHash, bytes: &[u8]) -> io::Result<()> {
    // A name that is taken is not ours to write to.
    let mut file = fs::File::create_new(path)?;
    file.write_all(MAGIC)?;
    file.write_all(&hash.0.map(u64::to_le_bytes).concat())?;
    file.write_all(&checksum(hash, bytes).to_le_bytes())?;
    file.write_all(bytes)
}

fn read_block(path: &Path, hash: PrefixHash, out: &mut Vec<u8>) -> io::Result<()> {
    *out = fs::read(path)?;
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let (head, bytes) = out.split_at_checked(HEAD).ok_or_else(|| broken("the file is cut"))?;
    let (magic, rest) = head.split_at(MAGIC.len());
    let (named, sum) = rest.split_at(16);
    if magic != MAGIC || named != hash.0.map(u64::to_le_bytes).concat() {
        return Err(broken("the file is of another prefix"));
    }
    if sum != checksum(hash, bytes).to_le_bytes() {
        return Err(broken("the checksum is wrong"));
    }
    out.drain(..HEAD);
    Ok(())
}
