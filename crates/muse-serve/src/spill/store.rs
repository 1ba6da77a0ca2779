//! Pages of the K/V cache on disk: a file each, found by the name of its prefix, checked when read,
//! the longest unused removed first. What cannot be read or written is forgotten, never an error.
// A build without any backend opens no folder.
#![cfg_attr(not(feature = "cpu"), allow(dead_code))]

use std::collections::HashMap;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use muse_core::contract::{PrefixName, Shelf};
use muse_core::sampler::mix;
use muse_core::{Error, Result};

const MAGIC: &[u8; 8] = b"MUSEKV1\n";
/// Magic, name, checksum.
const HEAD: usize = 8 + 16 + 8;
const ENDING: &str = "kv";
const SALT: &str = "salt";

/// A folder of pages.
pub(crate) struct SpillFolder {
    folder: PathBuf,
    root: PrefixName,
    most: u64,
    index: Mutex<Index>,
}

#[derive(Default)]
struct Index {
    files: HashMap<PrefixName, Entry>,
    bytes: u64,
    /// Uses, to tell what was used last.
    clock: u64,
}

struct Entry {
    bytes: u64,
    used: u64,
}

impl SpillFolder {
    /// Opens a folder, made when it is missing, for pages of the model of this identity, at most
    /// `most` bytes. What an earlier run left is found again; files of other models stay until
    /// space is needed.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the folder cannot be read or written.
    pub(crate) fn open(folder: &Path, most: u64, identity: u64) -> Result<Self> {
        let refuse = |error: io::Error| {
            Error::Invalid(format!(
                "--kv-spill {}: {error}; name a folder that can be written",
                folder.display()
            ))
        };
        fs::create_dir_all(folder).map_err(refuse)?;
        let salt = salt(folder).map_err(refuse)?;
        let index = Index::read(folder).map_err(refuse)?;
        let root = PrefixName([mix(salt[0], identity), mix(salt[1], !identity)]);
        let spill = Self { folder: folder.to_owned(), root, most, index: Mutex::new(index) };
        spill.shrink(&mut spill.lock());
        Ok(spill)
    }

    /// The index is consistent after every statement: a panic elsewhere does not spoil it.
    fn lock(&self) -> std::sync::MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, name: PrefixName) -> PathBuf {
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

    fn forget(&self, index: &mut Index, name: PrefixName) {
        if let Some(entry) = index.files.remove(&name) {
            index.bytes -= entry.bytes;
        }
        // Gone already is as good.
        let _ = fs::remove_file(self.path(name));
    }

    /// Writes beside and renames: whoever reads finds all or nothing.
    fn write(&self, name: PrefixName, bytes: &[u8]) -> io::Result<()> {
        let beside = self.folder.join(format!("{}.{}", file_name(name), std::process::id()));
        let outcome =
            write_page(&beside, name, bytes).and_then(|()| fs::rename(&beside, self.path(name)));
        if outcome.is_err() {
            let _ = fs::remove_file(&beside);
        }
        outcome
    }
}

impl Shelf for SpillFolder {
    fn root(&self) -> PrefixName {
        self.root
    }

    fn put(&self, name: PrefixName, bytes: &[u8]) {
        let size = (HEAD + bytes.len()) as u64;
        let mut index = self.lock();
        let used = index.tick();
        match index.files.get_mut(&name) {
            // A page that was saved with its window is not replaced by one without.
            Some(entry) if entry.bytes >= size => entry.used = used,
            _ if size > self.most => {}
            _ => {
                self.forget(&mut index, name);
                if let Err(error) = self.write(name, bytes) {
                    tracing::warn!("--kv-spill {}: {error}", self.folder.display());
                    return;
                }
                index.files.insert(name, Entry { bytes: size, used });
                index.bytes += size;
                self.shrink(&mut index);
            }
        }
    }

    fn get(&self, name: PrefixName, out: &mut Vec<u8>) -> bool {
        let mut index = self.lock();
        let used = index.tick();
        let Some(entry) = index.files.get_mut(&name) else { return false };
        entry.used = used;
        match read_page(&self.path(name), name, out) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!("--kv-spill {}: {error}; dropped", self.path(name).display());
                self.forget(&mut index, name);
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

fn file_name(name: PrefixName) -> String {
    format!("{:016x}{:016x}.{ENDING}", name.0[0], name.0[1])
}

/// The prefix that a file is of, its ending aside.
fn name_of(file: &str) -> Option<PrefixName> {
    let (hex, _) = file.split_once('.')?;
    let (high, low) = hex.split_at_checked(16)?;
    let lane = |hex| u64::from_str_radix(hex, 16).ok();
    (low.len() == 16).then_some(PrefixName([lane(high)?, lane(low)?]))
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

fn checksum(name: PrefixName, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = mix(name.0[0], name.0[1] ^ bytes.len() as u64);
    for word in words {
        sum = (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sum ^= sum >> 29;
    }
    rest.iter().fold(sum, |sum, &byte| mix(sum, u64::from(byte)))
}

fn write_page(path: &Path, name: PrefixName, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(MAGIC)?;
    file.write_all(&name.0.map(u64::to_le_bytes).concat())?;
    file.write_all(&checksum(name, bytes).to_le_bytes())?;
    file.write_all(bytes)
}

fn read_page(path: &Path, name: PrefixName, out: &mut Vec<u8>) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path, most: u64, identity: u64) -> SpillFolder {
        SpillFolder::open(folder, most, identity).expect("a folder")
    }

    /// Pages kept and their bytes.
    fn size(spill: &SpillFolder) -> (usize, u64) {
        let index = spill.lock();
        (index.files.len(), index.bytes)
    }

    fn get(spill: &SpillFolder, name: PrefixName) -> Option<Vec<u8>> {
        let mut out = vec![9];
        spill.get(name, &mut out).then_some(out)
    }

    #[test]
    fn pages_survive_and_other_models_have_other_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let spill = open(folder.path(), 1000, 5);
        let name = spill.root().then(&[]);
        spill.put(name, b"page");
        let again = open(folder.path(), 1000, 5);
        assert_eq!((again.root(), get(&again, name)), (spill.root(), Some(b"page".to_vec())));
        assert_ne!(open(folder.path(), 1000, 6).root(), spill.root());
        assert_eq!(get(&again, PrefixName([1, 2])), None);
    }

    #[test]
    fn damage_is_noticed_and_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let spill = open(folder.path(), 1 << 20, 5);
        let name = PrefixName([3, 4]);
        let bytes: Vec<u8> = (0..77).collect();
        spill.put(name, &bytes);
        let path = spill.path(name);
        let whole = fs::read(&path).expect("a file");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).expect("written");
            let spill = open(folder.path(), 1 << 20, 5);
            assert_eq!(get(&spill, name), None, "byte {at}");
            assert!(!path.exists());
        }
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).expect("written");
            assert_eq!(get(&open(folder.path(), 1 << 20, 5), name), None, "{len} bytes");
        }
        fs::write(&path, &whole).expect("written");
        assert_eq!(get(&open(folder.path(), 1 << 20, 5), name), Some(bytes));
    }

    #[test]
    fn the_longest_unused_go_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let page = vec![1; 100 - HEAD];
        let spill = open(folder.path(), 350, 5);
        let names: Vec<PrefixName> = (0..4).map(|i| PrefixName([i, i])).collect();
        names[..3].iter().for_each(|&name| spill.put(name, &page));
        assert!(get(&spill, names[0]).is_some());
        spill.put(names[3], &page);
        let there: Vec<bool> = names.iter().map(|&name| spill.path(name).exists()).collect();
        assert_eq!((there, size(&spill)), (vec![true, false, true, true], (3, 300)));
        // A smaller bound takes effect when the folder is opened; what never fits is not written.
        assert_eq!(size(&open(folder.path(), 100, 5)).0, 1);
        spill.put(PrefixName([9, 9]), &[0; 400]);
        assert!(!spill.path(PrefixName([9, 9])).exists());
    }

    #[test]
    fn a_page_with_its_window_is_not_replaced_by_one_without() {
        let folder = tempfile::tempdir().expect("a folder");
        let spill = open(folder.path(), 1000, 5);
        let name = PrefixName([1, 1]);
        for (given, kept) in [("ab", "ab"), ("abcd", "abcd"), ("ab", "abcd")] {
            spill.put(name, given.as_bytes());
            assert_eq!(get(&spill, name).as_deref(), Some(kept.as_bytes()));
        }
        assert_eq!(size(&spill), (1, (HEAD + 4) as u64));
    }

    #[test]
    fn leavings_go_and_foreign_files_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let half = folder.path().join(format!("{}.77", file_name(PrefixName([1, 2]))));
        let foreign = folder.path().join("notes.txt");
        for path in [&half, &foreign] {
            fs::write(path, "x").expect("written");
        }
        assert_eq!(size(&open(folder.path(), 0, 5)), (0, 0));
        assert!(!half.exists() && foreign.exists());
        let refused = SpillFolder::open(&foreign, 0, 5).err().expect("no folder").to_string();
        assert!(refused.contains("--kv-spill"), "{refused}");
    }
}
