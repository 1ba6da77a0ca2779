//! The files: one a KV block, found by the name of its prefix, checked when read, the longest unused
//! removed first. What cannot be read or written is forgotten, never an error.

use std::collections::HashMap;
use std::fs::{self, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use muse_core::contract::PrefixHash;
use muse_core::hash::hash64;
use muse_core::{Error, Result};

const MAGIC: &[u8; 8] = b"MUSEKV1\n";
/// Magic, name, checksum.
pub(super) const HEAD: usize = 8 + 16 + 8;
const ENDING: &str = "kv";
const SALT: &str = "salt";
const LOCK: &str = "lock";

/// A folder of KV blocks that no other process uses.
pub(super) struct Store {
    folder: PathBuf,
    root: PrefixHash,
    most: u64,
    index: Mutex<Index>,
    /// Whether the last KV block could not be written: a full disk is told of once.
    failing: AtomicBool,
    /// Held for as long as the folder is in use.
    _lock: fs::File,
}

#[derive(Default)]
pub(super) struct Index {
    pub(super) files: HashMap<PrefixHash, Entry>,
    pub(super) bytes: u64,
    /// Uses, to tell what was used last.
    clock: u64,
}

pub(super) struct Entry {
    bytes: u64,
    used: u64,
}

impl Store {
    /// As [`super::SpillFolder::open`].
    pub(super) fn open(folder: &Path, most: u64, identity: u64) -> Result<Self> {
        let refuse = |error: io::Error| {
            Error::Invalid(format!(
                "--kv-spill {}: {error}; name a folder that can be written",
                folder.display()
            ))
        };
        fs::create_dir_all(folder).map_err(refuse)?;
        let lock = fs::File::create(folder.join(LOCK)).map_err(refuse)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Invalid(format!(
                    "--kv-spill {}: another server uses this folder; name a folder of its own for \
                     each",
                    folder.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(refuse(error)),
        }
        let salt = salt(folder).map_err(refuse)?;
        let index = Index::read(folder).map_err(refuse)?;
        let store = Self {
            folder: folder.to_owned(),
            root: PrefixHash([hash64(salt[0], identity), hash64(salt[1], !identity)]),
            most,
            index: Mutex::new(index),
            failing: AtomicBool::new(false),
            _lock: lock,
        };
        store.shrink(&mut store.lock());
        Ok(store)
    }

    pub(super) fn root(&self) -> PrefixHash {
        self.root
    }

    /// The index is consistent after every statement: a panic elsewhere does not spoil it. It is
    /// not held while files are read or written.
    pub(super) fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn path(&self, name: PrefixHash) -> PathBuf {
        self.folder.join(file_name(name))
    }

    /// Removes the longest unused until the rest fits.
    fn shrink(&self, index: &mut Index) {
        while index.bytes > self.most {
            let oldest = index.files.iter().min_by_key(|(_, entry)| entry.used);
            let Some((&name, _)) = oldest else { break };
            self.forget(index, name);
        }
    }

    fn forget(&self, index: &mut Index, name: PrefixHash) {
        if let Some(entry) = index.files.remove(&name) {
            index.bytes -= entry.bytes;
        }
        // Gone already is as good.
        let _ = fs::remove_file(self.path(name));
    }

    /// Whether a KV block of so many bytes is worth writing. One that is there, or there with its
    /// window, counts as used.
    pub(super) fn wants(&self, name: PrefixHash, bytes: usize) -> bool {
        let size = (HEAD + bytes) as u64;
        let mut index = self.lock();
        let used = index.tick();
        match index.files.get_mut(&name) {
            Some(entry) if entry.bytes >= size => {
                entry.used = used;
                false
            }
            _ => size <= self.most,
        }
    }

    /// Writes a KV block that is wanted.
    pub(super) fn put(&self, name: PrefixHash, bytes: &[u8]) {
        let written = self.write(name, bytes);
        let failed = self.failing.swap(written.is_err(), Ordering::Relaxed);
        let mut index = self.lock();
        // What was there is written over, or was older than what could not be.
        if let Some(entry) = index.files.remove(&name) {
            index.bytes -= entry.bytes;
        }
        match written {
            Ok(()) => {
                let (bytes, used) = ((HEAD + bytes.len()) as u64, index.tick());
                index.files.insert(name, Entry { bytes, used });
                index.bytes += bytes;
                self.shrink(&mut index);
            }
            Err(error) => {
                self.forget(&mut index, name);
                if !failed {
                    let folder = self.folder.display();
                    tracing::warn!("--kv-spill {folder}: {error}; blocks are lost until this ends");
                }
            }
        }
    }

    /// Writes beside and renames: whoever reads finds all or nothing.
    fn write(&self, name: PrefixHash, bytes: &[u8]) -> io::Result<()> {
        let beside = self.folder.join(format!("{}.{}", file_name(name), std::process::id()));
        let outcome =
            write_block(&beside, name, bytes).and_then(|()| fs::rename(&beside, self.path(name)));
        if outcome.is_err() {
            let _ = fs::remove_file(&beside);
        }
        outcome
    }

    /// Replaces `out` by a KV block that is there.
    pub(super) fn get(&self, name: PrefixHash, out: &mut Vec<u8>) -> bool {
        {
            let mut index = self.lock();
            let used = index.tick();
            let Some(entry) = index.files.get_mut(&name) else { return false };
            entry.used = used;
        }
        match read_block(&self.path(name), name, out) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!("--kv-spill {}: {error}; dropped", self.path(name).display());
                self.forget(&mut self.lock(), name);
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

    /// What lies in a folder, by age. Leavings of writes that never ended go.
    fn read(folder: &Path) -> io::Result<Self> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            let Some(text) = path.file_name().and_then(|name| name.to_str()) else { continue };
            match name_of(text) {
                Some(name) if path.extension().is_some_and(|e| e == ENDING) => {
                    let about = entry.metadata()?;
                    let age = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    found.push((age, name, about.len()));
                }
                Some(_) => fs::remove_file(&path)?,
                None => {}
            }
        }
        found.sort_unstable();
        let mut index = Self::default();
        for (_, name, bytes) in found {
            let used = index.tick();
            index.bytes += bytes;
            index.files.insert(name, Entry { bytes, used });
        }
        Ok(index)
    }
}

pub(super) fn file_name(name: PrefixHash) -> String {
    format!("{:016x}{:016x}.{ENDING}", name.0[0], name.0[1])
}

/// The prefix that a file is of, its ending aside.
fn name_of(file: &str) -> Option<PrefixHash> {
    let (hex, _) = file.split_once('.')?;
    let (high, low) = hex.split_at_checked(16)?;
    let lane = |hex| u64::from_str_radix(hex, 16).ok();
    (low.len() == 16).then_some(PrefixHash([lane(high)?, lane(low)?]))
}

/// Numbers of this folder's own, so that nobody can find two prefixes of one name beforehand.
fn salt(folder: &Path) -> io::Result<[u64; 2]> {
    let path = folder.join(SALT);
    let read = fs::read(&path).ok().and_then(|bytes| {
        let (lanes, rest) = bytes.as_chunks::<8>();
        let lanes: [[u8; 8]; 2] = lanes.try_into().ok()?;
        rest.is_empty().then(|| lanes.map(u64::from_le_bytes))
    });
    if let Some(salt) = read {
        return Ok(salt);
    }
    let salt = [RandomState::new(), RandomState::new()].map(|state| state.build_hasher().finish());
    fs::write(&path, salt.map(u64::to_le_bytes).concat())?;
    Ok(salt)
}

fn checksum(name: PrefixHash, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = hash64(name.0[0], name.0[1] ^ bytes.len() as u64);
    for word in words {
        sum = (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sum ^= sum >> 29;
    }
    rest.iter().fold(sum, |sum, &byte| hash64(sum, u64::from(byte)))
}

fn write_block(path: &Path, name: PrefixHash, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(MAGIC)?;
    file.write_all(&name.0.map(u64::to_le_bytes).concat())?;
    file.write_all(&checksum(name, bytes).to_le_bytes())?;
    file.write_all(bytes)
}

fn read_block(path: &Path, name: PrefixHash, out: &mut Vec<u8>) -> io::Result<()> {
    *out = fs::read(path)?;
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let (head, bytes) = out.split_at_checked(HEAD).ok_or_else(|| broken("the file is cut"))?;
    let (magic, rest) = head.split_at(MAGIC.len());
    let (named, sum) = rest.split_at(16);
    if magic != MAGIC || named != name.0.map(u64::to_le_bytes).concat() {
        return Err(broken("the file is of another prefix"));
    }
    if sum != checksum(name, bytes).to_le_bytes() {
        return Err(broken("the checksum is wrong"));
    }
    out.drain(..HEAD);
    Ok(())
}
