//! KV blocks of the K/V cache on disk. A thread of its own writes them, for the engine waits for no
//! disk: what comes faster than it can be written is forgotten.
// A build without any backend opens no folder.
#![cfg_attr(not(feature = "cpu"), allow(dead_code))]

mod store;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use muse_core::contract::{KvOffloadStore, PrefixHash};
use muse_core::{Error, Result};

use store::Store;

/// Bytes that may wait to be written.
const WAITING_BYTES: usize = 256 << 20;

/// A folder of KV blocks.
pub(crate) struct SpillFolder {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    store: Store,
    queue: Mutex<Queue>,
    /// The queue changed.
    news: Condvar,
}

#[derive(Default)]
struct Queue {
    /// The first one is being written.
    blocks: VecDeque<(PrefixHash, Arc<[u8]>)>,
    bytes: usize,
    /// Nothing more comes.
    closed: bool,
}

impl SpillFolder {
    /// Opens a folder, made when it is missing, for KV blocks of the model of this identity, at most
    /// `most` bytes. What an earlier run left is found again; files of other models stay until
    /// space is needed.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the folder cannot be read or written or another process uses it,
    /// [`Error::Device`] when the system gives no thread.
    pub(crate) fn open(folder: &Path, most: u64, identity: u64) -> Result<Self> {
        let store = Store::open(folder, most, identity)?;
        let shared = Arc::new(Shared { store, queue: Mutex::default(), news: Condvar::new() });
        let with = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("muse-spill".into())
            .spawn(move || with.write_all())
            .map_err(|error| Error::Device {
                doing: "starting the thread that writes blocks".into(),
                source: Arc::new(error),
            })?;
        Ok(Self { shared, writer: Some(writer) })
    }
}

impl Shared {
    /// The queue is consistent after every statement: a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        self.news.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what comes until the end.
    fn write_all(&self) {
        let mut queue = self.lock();
        loop {
            let Some((name, bytes)) = queue.blocks.front().cloned() else {
                if queue.closed {
                    return;
                }
                queue = self.wait(queue);
                continue;
            };
            drop(queue);
            self.store.put(name, &bytes);
            queue = self.lock();
            queue.blocks.pop_front();
            queue.bytes -= bytes.len();
            self.news.notify_all();
        }
    }
}

impl KvOffloadStore for SpillFolder {
    fn root(&self) -> PrefixHash {
        self.shared.store.root()
    }

    fn put(&self, name: PrefixHash, bytes: &[u8]) {
        if !self.shared.store.wants(name, bytes.len()) {
            return;
        }
        let mut queue = self.shared.lock();
        let waits = queue.blocks.iter().any(|(n, b)| *n == name && b.len() >= bytes.len());
        let room = queue.blocks.is_empty() || queue.bytes + bytes.len() <= WAITING_BYTES;
        if !waits && room {
            queue.bytes += bytes.len();
            queue.blocks.push_back((name, bytes.into()));
            self.shared.news.notify_all();
        }
    }

    fn get(&self, name: PrefixHash, out: &mut Vec<u8>) -> bool {
        // The newest of a name has its window.
        let queue = self.shared.lock();
        let waiting = queue.blocks.iter().rev().find(|(n, _)| *n == name);
        if let Some((_, bytes)) = waiting {
            out.clear();
            out.extend_from_slice(bytes);
            return true;
        }
        drop(queue);
        self.shared.store.get(name, out)
    }

    fn flush(&self) {
        let mut queue = self.shared.lock();
        while !queue.blocks.is_empty() {
            queue = self.shared.wait(queue);
        }
    }
}

impl Drop for SpillFolder {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.news.notify_all();
        if let Some(writer) = self.writer.take() {
            // It panics at nothing that could be mended here.
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::store::{HEAD, file_name};
    use super::*;

    fn open(folder: &Path, most: u64, identity: u64) -> SpillFolder {
        SpillFolder::open(folder, most, identity).expect("a folder")
    }

    fn path(spill: &SpillFolder, name: PrefixHash) -> PathBuf {
        spill.shared.store.path(name)
    }

    /// KV blocks kept and their bytes.
    fn size(spill: &SpillFolder) -> (usize, u64) {
        let index = spill.shared.store.lock();
        (index.files.len(), index.bytes)
    }

    fn get(spill: &SpillFolder, name: PrefixHash) -> Option<Vec<u8>> {
        let mut out = vec![9];
        spill.get(name, &mut out).then_some(out)
    }

    #[test]
    fn blocks_survive_and_other_models_have_other_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let spill = open(folder.path(), 1000, 5);
        let name = spill.root().extend(&[]);
        spill.put(name, b"block");
        let root = spill.root();
        drop(spill);
        let again = open(folder.path(), 1000, 5);
        assert_eq!((again.root(), get(&again, name)), (root, Some(b"block".to_vec())));
        assert_eq!(get(&again, PrefixHash([1, 2])), None);
        drop(again);
        assert_ne!(open(folder.path(), 1000, 6).root(), root);
    }

    #[test]
    fn damage_is_noticed_and_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let spill = open(folder.path(), 1 << 20, 5);
        let name = PrefixHash([3, 4]);
        let bytes: Vec<u8> = (0..77).collect();
        spill.put(name, &bytes);
        let path = path(&spill, name);
        drop(spill);
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
        let block = vec![1; 100 - HEAD];
        let spill = open(folder.path(), 350, 5);
        let names: Vec<PrefixHash> = (0..4).map(|i| PrefixHash([i, i])).collect();
        names[..3].iter().for_each(|&name| spill.put(name, &block));
        spill.flush();
        assert!(get(&spill, names[0]).is_some());
        spill.put(names[3], &block);
        spill.flush();
        let there: Vec<bool> = names.iter().map(|&name| path(&spill, name).exists()).collect();
        assert_eq!((there, size(&spill)), (vec![true, false, true, true], (3, 300)));
        // A smaller bound takes effect when the folder is opened; what never fits is not written.
        drop(spill);
        let spill = open(folder.path(), 100, 5);
        assert_eq!(size(&spill).0, 1);
        spill.put(PrefixHash([9, 9]), &[0; 400]);
        spill.flush();
        assert!(!path(&spill, PrefixHash([9, 9])).exists());
    }

    #[test]
    fn a_block_with_its_window_is_not_replaced_by_one_without() {
        let folder = tempfile::tempdir().expect("a folder");
        let spill = open(folder.path(), 1000, 5);
        let name = PrefixHash([1, 1]);
        for (given, kept) in [("ab", "ab"), ("abcd", "abcd"), ("ab", "abcd")] {
            spill.put(name, given.as_bytes());
            // While it waits, and when it is written.
            assert_eq!(get(&spill, name).as_deref(), Some(kept.as_bytes()));
            spill.flush();
            assert_eq!(get(&spill, name).as_deref(), Some(kept.as_bytes()));
        }
        assert_eq!(size(&spill), (1, (HEAD + 4) as u64));
    }

    #[test]
    fn a_folder_belongs_to_one_server() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = open(folder.path(), 1000, 5);
        let second = SpillFolder::open(folder.path(), 1000, 5).err().expect("in use").to_string();
        assert!(second.contains("another server"), "{second}");
        drop(first);
        open(folder.path(), 1000, 5);
    }

    #[test]
    fn what_cannot_be_written_is_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let spill = open(folder.path(), 1000, 5);
        let (bad, good) = (PrefixHash([1, 1]), PrefixHash([2, 2]));
        // Nothing can be renamed to where a folder is.
        fs::create_dir_all(path(&spill, bad).join("in the way")).expect("a folder");
        for name in [bad, good] {
            spill.put(name, b"block");
        }
        spill.flush();
        assert_eq!((get(&spill, bad), get(&spill, good)), (None, Some(b"block".to_vec())));
        assert_eq!(size(&spill).0, 1);
        let left = fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 4, "the salt, the lock, the folder and the block");
    }

    #[test]
    fn odd_bounds_are_kept() {
        for (most, kept) in [(0, false), (1, false), (35, false), (36, true), (u64::MAX, true)] {
            let folder = tempfile::tempdir().expect("a folder");
            let spill = open(folder.path(), most, 5);
            spill.put(PrefixHash([1, 1]), b"block");
            spill.flush();
            assert_eq!(get(&spill, PrefixHash([1, 1])).is_some(), kept, "{most} bytes");
        }
    }

    #[test]
    fn all_that_waits_is_written_before_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let spill = open(folder.path(), 1 << 20, 5);
        let names: Vec<PrefixHash> = (0..50).map(|i| PrefixHash([i, i])).collect();
        names.iter().for_each(|&name| spill.put(name, &[name.0[0] as u8; 999]));
        drop(spill);
        let spill = open(folder.path(), 1 << 20, 5);
        for name in names {
            assert_eq!(get(&spill, name), Some(vec![name.0[0] as u8; 999]));
        }
    }

    #[test]
    fn leavings_go_and_foreign_files_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let half = folder.path().join(format!("{}.77", file_name(PrefixHash([1, 2]))));
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
