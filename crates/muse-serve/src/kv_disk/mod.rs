//! KV offload to disk (`--kv-disk`): evicted KV blocks in a folder. A thread writes them, so the
//! engine never waits for the disk; blocks that come faster than it writes are dropped.

mod marker;
mod store;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use muse_core::contract::{KvOffloadStore, PrefixHash};
use muse_core::{Error, Result};

use store::Store;

/// The most bytes in the write queue.
const MAX_QUEUED_BYTES: usize = 256 << 20;

/// A folder of KV blocks with its writer thread.
pub(crate) struct KvDisk {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    store: Store,
    queue: Mutex<Queue>,
    /// Notified when the queue changes.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// The first one is being written.
    blocks: VecDeque<(PrefixHash, Arc<[u8]>)>,
    bytes: usize,
    /// The writer ends when the queue is empty.
    closed: bool,
}

impl KvDisk {
    /// Opens a folder, or makes it, for KV blocks of the model with this identity; its files take
    /// at most `max_bytes`. Blocks of an earlier run are found again; those of other models stay until
    /// space is needed.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the folder cannot be read or written, when it holds files and no
    /// marker, or when another process uses it,
    /// [`Error::Device`] when the system gives no thread.
    pub(crate) fn open(folder: &Path, max_bytes: u64, identity: u64) -> Result<Self> {
        let store = Store::open(folder, max_bytes, identity)?;
        let shared = Arc::new(Shared { store, queue: Mutex::default(), changed: Condvar::new() });
        let writer = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("muse-kv-disk".into())
            .spawn(move || writer.write_all())
            .map_err(|error| Error::Device {
                doing: "starting the thread that writes KV blocks".into(),
                source: Arc::new(error),
            })?;
        Ok(Self { shared, writer: Some(writer) })
    }
}

impl Shared {
    /// Ignores poisoning: the queue is consistent after every statement.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes queued blocks until the queue is closed.
    fn write_all(&self) {
        let mut queue = self.lock();
        loop {
            let Some((hash, bytes)) = queue.blocks.front().cloned() else {
                if queue.closed {
                    return;
                }
                queue = self.wait(queue);
                continue;
            };
            drop(queue);
            self.store.put(hash, &bytes);
            queue = self.lock();
            queue.blocks.pop_front();
            queue.bytes -= bytes.len();
            self.changed.notify_all();
        }
    }
}

impl KvOffloadStore for KvDisk {
    fn root(&self) -> PrefixHash {
        self.shared.store.root()
    }

    fn put(&self, hash: PrefixHash, bytes: &[u8]) {
        if !self.shared.store.needs(hash, bytes.len()) {
            return;
        }
        let mut queue = self.shared.lock();
        let queued = queue.blocks.iter().any(|(h, b)| *h == hash && b.len() >= bytes.len());
        let fits = queue.blocks.is_empty() || queue.bytes + bytes.len() <= MAX_QUEUED_BYTES;
        if !queued && fits {
            queue.bytes += bytes.len();
            queue.blocks.push_back((hash, bytes.into()));
            self.shared.changed.notify_all();
        }
    }

    fn get(&self, hash: PrefixHash, out: &mut Vec<u8>) -> bool {
        // The last one queued under a hash is the largest: it has its window block too.
        let queue = self.shared.lock();
        let queued = queue.blocks.iter().rev().find(|(h, _)| *h == hash);
        if let Some((_, bytes)) = queued {
            out.clear();
            out.extend_from_slice(bytes);
            return true;
        }
        drop(queue);
        self.shared.store.get(hash, out)
    }

    fn flush(&self) {
        let mut queue = self.shared.lock();
        while !queue.blocks.is_empty() {
            queue = self.shared.wait(queue);
        }
    }
}

impl Drop for KvDisk {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(writer) = self.writer.take() {
            // A panic of the writer was reported when it happened.
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::sync::atomic::Ordering;

    use super::store::{HEAD, file_name};
    use super::*;

    fn open(folder: &Path, max_bytes: u64, identity: u64) -> KvDisk {
        KvDisk::open(folder, max_bytes, identity).expect("a folder")
    }

    fn path(disk: &KvDisk, hash: PrefixHash) -> PathBuf {
        disk.shared.store.path(hash)
    }

    /// KV blocks kept and their bytes.
    fn size(disk: &KvDisk) -> (usize, u64) {
        let index = disk.shared.store.lock();
        (index.files.len(), index.bytes)
    }

    fn get(disk: &KvDisk, hash: PrefixHash) -> Option<Vec<u8>> {
        let mut out = vec![9];
        disk.get(hash, &mut out).then_some(out)
    }

    #[test]
    fn blocks_survive_and_other_models_have_another_root() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = open(folder.path(), 1000, 5);
        let hash = disk.root().extend(&[]);
        disk.put(hash, b"block");
        let root = disk.root();
        drop(disk);
        let again = open(folder.path(), 1000, 5);
        assert_eq!((again.root(), get(&again, hash)), (root, Some(b"block".to_vec())));
        assert_eq!(get(&again, PrefixHash([1, 2])), None);
        drop(again);
        assert_ne!(open(folder.path(), 1000, 6).root(), root);
    }

    #[test]
    fn damaged_files_are_detected_and_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = open(folder.path(), 1 << 20, 5);
        let hash = PrefixHash([3, 4]);
        let bytes: Vec<u8> = (0..77).collect();
        disk.put(hash, &bytes);
        let path = path(&disk, hash);
        drop(disk);
        let whole = fs::read(&path).expect("a file");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).expect("written");
            let disk = open(folder.path(), 1 << 20, 5);
            assert_eq!(get(&disk, hash), None, "byte {at}");
            assert!(!path.exists());
        }
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).expect("written");
            assert_eq!(get(&open(folder.path(), 1 << 20, 5), hash), None, "{len} bytes");
        }
        fs::write(&path, &whole).expect("written");
        assert_eq!(get(&open(folder.path(), 1 << 20, 5), hash), Some(bytes));
    }

    #[test]
    fn least_recently_used_blocks_are_removed_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let block = vec![1; 100 - HEAD];
        let disk = open(folder.path(), 350, 5);
        let hashes: Vec<PrefixHash> = (0..4).map(|i| PrefixHash([i, i])).collect();
        hashes[..3].iter().for_each(|&hash| disk.put(hash, &block));
        disk.flush();
        assert!(get(&disk, hashes[0]).is_some());
        disk.put(hashes[3], &block);
        disk.flush();
        let there: Vec<bool> = hashes.iter().map(|&hash| path(&disk, hash).exists()).collect();
        assert_eq!((there, size(&disk)), (vec![true, false, true, true], (3, 300)));
        // A smaller bound takes effect when the folder is opened; a block above it is not written.
        drop(disk);
        let disk = open(folder.path(), 100, 5);
        assert_eq!(size(&disk).0, 1);
        disk.put(PrefixHash([9, 9]), &[0; 400]);
        disk.flush();
        assert!(!path(&disk, PrefixHash([9, 9])).exists());
    }

    #[test]
    fn a_block_with_its_window_is_not_replaced_by_one_without() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = open(folder.path(), 1000, 5);
        let hash = PrefixHash([1, 1]);
        for (given, kept) in [("ab", "ab"), ("abcd", "abcd"), ("ab", "abcd")] {
            disk.put(hash, given.as_bytes());
            // While it is queued, and when it is written.
            assert_eq!(get(&disk, hash).as_deref(), Some(kept.as_bytes()));
            disk.flush();
            assert_eq!(get(&disk, hash).as_deref(), Some(kept.as_bytes()));
        }
        assert_eq!(size(&disk), (1, (HEAD + 4) as u64));
    }

    #[test]
    fn a_folder_is_used_by_one_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = open(folder.path(), 1000, 5);
        let second = KvDisk::open(folder.path(), 1000, 5).err().expect("in use").to_string();
        assert!(second.contains("another server"), "{second}");
        drop(first);
        open(folder.path(), 1000, 5);
    }

    #[test]
    fn blocks_that_cannot_be_written_are_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = open(folder.path(), 1000, 5);
        let (bad, good) = (PrefixHash([1, 1]), PrefixHash([2, 2]));
        // No file can be renamed onto a folder.
        fs::create_dir_all(path(&disk, bad).join("in the way")).expect("a folder");
        for hash in [bad, good] {
            disk.put(hash, b"block");
        }
        disk.flush();
        assert_eq!((get(&disk, bad), get(&disk, good)), (None, Some(b"block".to_vec())));
        assert_eq!(size(&disk).0, 1);
        let left = fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 3, "the marker, the folder and the block");
    }

    #[test]
    fn bounds_around_the_size_of_a_block_hold() {
        for (max_bytes, kept) in [(0, false), (1, false), (36, false), (37, true), (u64::MAX, true)]
        {
            let folder = tempfile::tempdir().expect("a folder");
            let disk = open(folder.path(), max_bytes, 5);
            disk.put(PrefixHash([1, 1]), b"block");
            disk.flush();
            let store = &disk.shared.store;
            assert!(
                !store.failing.load(Ordering::Relaxed),
                "the disk under the tests took no file"
            );
            assert_eq!(get(&disk, PrefixHash([1, 1])).is_some(), kept, "{max_bytes} bytes");
        }
    }

    #[test]
    fn queued_blocks_are_written_before_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = open(folder.path(), 1 << 20, 5);
        let hashes: Vec<PrefixHash> = (0..50).map(|i| PrefixHash([i, i])).collect();
        hashes.iter().for_each(|&hash| disk.put(hash, &[hash.0[0] as u8; 999]));
        drop(disk);
        let disk = open(folder.path(), 1 << 20, 5);
        for hash in hashes {
            assert_eq!(get(&disk, hash), Some(vec![hash.0[0] as u8; 999]));
        }
    }

    #[test]
    fn only_files_with_a_name_of_a_kv_block_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(open(folder.path(), 1000, 5));
        let block = file_name(PrefixHash([1, 2]));
        let hex = block.strip_suffix(".kv").expect("an extension");
        let kept = [
            "notes.txt".to_owned(),
            hex.to_owned(),
            format!("{hex}.txt"),
            format!("{hex}.7"),
            format!("{block}.bak"),
            format!("0{block}"),
            format!("+{}", &block[1..]),
            block.replace('0', "A"),
        ];
        let gone = [block.clone(), format!("{block}.tmp")];
        for name in kept.iter().chain(&gone) {
            fs::write(folder.path().join(name), "x").expect("written");
        }
        let folders = [file_name(PrefixHash([3, 3])), file_name(PrefixHash([4, 4])) + ".tmp"];
        for name in &folders {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let target = folder.path().join("notes.txt");
        let link = file_name(PrefixHash([5, 5])) + ".tmp";
        std::os::unix::fs::symlink(&target, folder.path().join(&link)).expect("a link");
        assert_eq!(size(&open(folder.path(), 0, 5)), (0, 0));
        let there = |name: &String| folder.path().join(name).symlink_metadata().is_ok();
        for name in kept.iter().chain(&folders).chain([&link]) {
            assert!(there(name), "{name} was removed");
        }
        assert!(!gone.iter().any(there), "blocks above the bound and temporary files are removed");
    }

    #[test]
    fn a_folder_that_is_none_and_one_of_others_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("notes.txt");
        fs::write(&file, "x").expect("written");
        for path in [&*file, folder.path()] {
            let refused = KvDisk::open(path, 0, 5).err().expect("refused").to_string();
            assert!(refused.contains("--kv-disk") && refused.contains("name a"), "{refused}");
        }
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
