//! Matrices of a checkpoint in the device's layout, converted once and kept in a folder of the
//! checkpoint's own: a file each, which has its name only when it is whole.

mod file;
#[cfg(test)]
pub(crate) mod tests;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use muse_core::contract::{TensorInfo, WeightSource};
use muse_core::quant::tile::TileFormat;
use muse_core::{Error, Result};
use sha2::{Digest, Sha256};

use crate::error::device as fault;
use crate::weight::Layout;
use file::Writer;

/// What a matrix of a checkpoint is to be converted to; those that get no format are left out.
pub type Formats<'a> = dyn Fn(&TensorInfo) -> Option<TileFormat> + Sync + 'a;

/// Hears how many bytes are done, of how many.
pub type Progress<'a> = dyn Fn(u64, u64) + Sync + 'a;

/// The converted matrices of one checkpoint.
pub struct WeightCache {
    folder: PathBuf,
}

impl WeightCache {
    /// The cache of a checkpoint in a folder of its own below `root`, named by the hash of all that
    /// the checkpoint holds: another checkpoint never meets these files. A checkpoint that is hashed
    /// is remembered by its stamp, so that it need not be read again while its files stay the same;
    /// `progress` hears the bytes that are hashed and the bytes to hash.
    ///
    /// # Errors
    /// [`Error::Device`] when the folder cannot be made; those of the checkpoint.
    pub fn open(
        root: &Path,
        source: &dyn WeightSource,
        threads: usize,
        progress: &Progress<'_>,
    ) -> Result<Self> {
        fs::create_dir_all(root).map_err(|error| failed(root, &error))?;
        let known = source.stamp().map(|stamp| Known::of(root, stamp));
        let name = match known.as_ref().and_then(Known::read) {
            Some(name) => name,
            None => {
                let name = hash(source, threads, progress)?;
                known.map_or(Ok(()), |known| known.write(&name))?;
                name
            }
        };
        let folder = root.join(name);
        fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
        Ok(Self { folder })
    }

    /// Converts the matrices that are not there yet, on several threads, telling `progress` the
    /// bytes that are there and the bytes wanted. A thread holds 32 rows at a time. When this was
    /// interrupted, doing it again goes on with the matrix that was not whole; of several
    /// processes one converts, and the others wait for it.
    ///
    /// # Errors
    /// [`Error::Device`] when the folder cannot be written; those of the checkpoint.
    pub fn fill(
        &self,
        source: &dyn WeightSource,
        formats: &Formats<'_>,
        threads: usize,
        progress: &Progress<'_>,
    ) -> Result<()> {
        let lock = self.folder.join("lock");
        let held = File::create(&lock).map_err(|error| failed(&lock, &error))?;
        held.lock().map_err(|error| failed(&lock, &error))?;
        let wanted: Vec<(&TensorInfo, Layout)> =
            source.tensors().iter().filter_map(|t| Some((t, layout(t, formats(t)?)))).collect();
        let total = wanted.iter().map(|(_, layout)| layout.bytes() as u64).sum();
        let done = AtomicU64::new(0);
        in_parallel(&wanted, threads, |(tensor, layout)| {
            let path = self.path(&tensor.name, layout.format)?;
            let tell = |bytes: usize| {
                let bytes = bytes as u64;
                progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes, total);
            };
            if path.exists() {
                tell(layout.bytes());
                return Ok(());
            }
            convert(source, tensor, *layout, &path, tell)
        })?;
        Ok(())
    }

    /// The bytes of a matrix, as [`crate::Weight::of_bytes`] takes them.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when its file is missing or not what was written.
    pub fn read(&self, name: &str, layout: Layout) -> Result<Vec<u8>> {
        file::read(&self.path(name, layout.format)?, name, layout)
    }

    /// # Errors
    /// [`Error::Corrupt`] for a name that could lead elsewhere.
    fn path(&self, name: &str, format: TileFormat) -> Result<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !name.chars().all(plain) {
            return Err(Error::Corrupt(format!(
                "the checkpoint has a matrix {name:?}, expected a name of letters, digits, `.`, `_` \
                 and `-`; repair the checkpoint"
            )));
        }
        Ok(self.folder.join(format!("{name}.{}", format.name().to_lowercase())))
    }
}

/// What a checkpoint hashed to, by its stamp.
struct Known {
    path: PathBuf,
    stamp: String,
}

impl Known {
    fn of(root: &Path, stamp: String) -> Self {
        Self { path: root.join(format!("{}.known", named(&stamp))), stamp }
    }

    /// A name that others wrote, or of another checkpoint, would lead elsewhere.
    fn line(&self, name: &str) -> String {
        format!("{name} {}\n", named(format!("{name} {}", self.stamp)))
    }

    fn read(&self) -> Option<String> {
        let line = fs::read_to_string(&self.path).ok()?;
        let name = line.split(' ').next()?;
        (line == self.line(name)).then(|| name.to_owned())
    }

    fn write(&self, name: &str) -> Result<()> {
        // Of processes that start together each has a file of its own.
        let partial = self.path.with_extension(std::process::id().to_string());
        let made = fs::write(&partial, self.line(name));
        let made = made.and_then(|()| fs::rename(&partial, &self.path));
        made.map_err(|error| failed(&self.path, &error))
    }
}

/// A hash of all that a checkpoint holds. Its memory is given back as it goes.
fn hash(source: &dyn WeightSource, threads: usize, progress: &Progress<'_>) -> Result<String> {
    let tensors = source.tensors();
    let bytes = |tensor: &TensorInfo| tensor.format.bytes_for(tensor.rows * tensor.cols) as u64;
    let (done, total) = (AtomicU64::new(0), tensors.iter().map(bytes).sum());
    let hashes = in_parallel(tensors, threads, |tensor| {
        let view = source.weight(&tensor.name)?;
        let mut hash = Sha256::new();
        for part in [&tensor.name, view.format.name()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        for number in [view.rows, view.cols] {
            hash.update((number as u64).to_le_bytes());
        }
        hash.update(&view.bytes);
        drop(view);
        source.release(&tensor.name);
        let bytes = bytes(tensor);
        progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes, total);
        Ok(hash.finalize())
    })?;
    Ok(named(hashes.concat()))
}

fn named(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes)[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn layout(tensor: &TensorInfo, format: TileFormat) -> Layout {
    Layout { format, rows: tensor.rows, cols: tensor.cols }
}

fn convert(
    source: &dyn WeightSource,
    tensor: &TensorInfo,
    layout: Layout,
    path: &Path,
    tell: impl Fn(usize),
) -> Result<()> {
    let view = source.weight(&tensor.name)?;
    let mut writer = Writer::new(path, &tensor.name, layout)?;
    for bytes in layout.encode_all(&view) {
        writer.write(&bytes)?;
        tell(bytes.len());
    }
    writer.finish()?;
    source.release(&tensor.name);
    Ok(())
}

/// Does `task` for all items on several threads; the first error ends it.
fn in_parallel<T: Sync, O: Send>(
    items: &[T],
    threads: usize,
    task: impl Fn(&T) -> Result<O> + Sync,
) -> Result<Vec<O>> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, O)>> {
        let mut made = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return Ok(made) };
            made.push((
                at,
                task(item).inspect_err(|_| next.store(items.len(), Ordering::Relaxed))?,
            ));
        }
    };
    let made = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a task does not panic")).collect()
    });
    let made: Result<Vec<Vec<_>>> = made;
    let mut made: Vec<(usize, O)> = made?.into_iter().flatten().collect();
    made.sort_by_key(|(at, _)| *at);
    Ok(made.into_iter().map(|(_, one)| one).collect())
}

/// The folder of the cache is the operator's to repair.
fn failed(path: &Path, error: &io::Error) -> Error {
    fault(
        &format!("keeping converted weights in {}", path.display()),
        format!("{error}; make room there, or choose another folder"),
    )
}
