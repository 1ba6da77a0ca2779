//! The weights of a checkpoint in the layout of the device, converted once and kept in a folder per
//! checkpoint, one file per weight. A file gets its name when it is complete.

mod file;
#[cfg(test)]
pub(crate) mod tests;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use muse_core::contract::{TensorInfo, WeightSource};
use muse_core::quant::tile::TileFormat;
use muse_core::{Error, Result};
use sha2::{Digest, Sha256};

use crate::weight::WeightLayout;
use file::{Writer, cache_error};

/// The format that a matrix of a checkpoint is converted to; `None` leaves it out.
pub type ChooseFormat<'a> = dyn Fn(&TensorInfo) -> Option<TileFormat> + Sync + 'a;

/// Called with the bytes that are done and the bytes in total.
pub type Progress<'a> = dyn Fn(u64, u64) + Sync + 'a;

/// The converted weights of one checkpoint.
pub struct WeightCache {
    folder: PathBuf,
}

impl WeightCache {
    /// Opens the cache of a checkpoint: a folder below `root` whose name is a hash of the whole
    /// content of the checkpoint, so that checkpoints never share files. The hash is recorded under
    /// the stamp of the checkpoint, so that unchanged files are not read again. `progress` is
    /// called while hashing.
    ///
    /// # Errors
    /// [`Error::Device`] when the folder cannot be made; those of the checkpoint.
    pub fn open(
        root: &Path,
        source: &dyn WeightSource,
        threads: usize,
        progress: &Progress<'_>,
    ) -> Result<Self> {
        fs::create_dir_all(root).map_err(|error| cache_error(root, &error))?;
        let record = source.stamp().map(|stamp| StampRecord::new(root, stamp));
        let name = match record.as_ref().and_then(StampRecord::read) {
            Some(name) => name,
            None => {
                let name = hash(source, threads, progress)?;
                record.map_or(Ok(()), |record| record.write(&name))?;
                name
            }
        };
        let folder = root.join(name);
        fs::create_dir_all(&folder).map_err(|error| cache_error(&folder, &error))?;
        Ok(Self { folder })
    }

    /// Converts the weights that are not in the cache yet, on several threads that hold 32 rows
    /// each. An interrupted conversion continues with the first incomplete weight when it is called
    /// again. Only one process converts at a time; others wait for it.
    ///
    /// # Errors
    /// [`Error::Device`] when the folder cannot be written; those of the checkpoint.
    pub fn fill(
        &self,
        source: &dyn WeightSource,
        formats: &ChooseFormat<'_>,
        threads: usize,
        progress: &Progress<'_>,
    ) -> Result<()> {
        let path = self.folder.join("lock");
        let lock = File::create(&path).map_err(|error| cache_error(&path, &error))?;
        lock.lock().map_err(|error| cache_error(&path, &error))?;
        let tensors: Vec<(&TensorInfo, WeightLayout)> =
            source.tensors().iter().filter_map(|t| Some((t, layout(t, formats(t)?)))).collect();
        let total = tensors.iter().map(|(_, layout)| layout.bytes() as u64).sum();
        let done = AtomicU64::new(0);
        parallel_map(&tensors, threads, |(tensor, layout)| {
            let path = self.path(&tensor.name, layout.format)?;
            let report = |bytes: usize| {
                let bytes = bytes as u64;
                progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes, total);
            };
            if path.exists() {
                report(layout.bytes());
                return Ok(());
            }
            convert(source, tensor, *layout, &path, report)
        })?;
        Ok(())
    }

    /// The bytes of a weight, as [`crate::Weight::from_bytes`] takes them.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when its file is missing or not what was written.
    pub fn read(&self, name: &str, layout: WeightLayout) -> Result<Vec<u8>> {
        file::read(&self.path(name, layout.format)?, name, layout)
    }

    /// The file of a weight.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a name that could be a path out of the folder.
    fn path(&self, name: &str, format: TileFormat) -> Result<PathBuf> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !name.chars().all(is_allowed) {
            return Err(Error::Corrupt(format!(
                "the checkpoint has a matrix {name:?}, expected a name of letters, digits, `.`, `_` \
                 and `-`; repair the checkpoint"
            )));
        }
        Ok(self.folder.join(format!("{name}.{}", format.name().to_lowercase())))
    }
}

/// The recorded hash of a checkpoint with a stamp.
struct StampRecord {
    path: PathBuf,
    stamp: String,
}

impl StampRecord {
    fn new(root: &Path, stamp: String) -> Self {
        Self { path: root.join(format!("{}.known", short_hash(&stamp))), stamp }
    }

    /// The content of the file. Its second field shows that the first one was written for this
    /// stamp.
    fn line(&self, name: &str) -> String {
        format!("{name} {}\n", short_hash(format!("{name} {}", self.stamp)))
    }

    fn read(&self) -> Option<String> {
        let line = fs::read_to_string(&self.path).ok()?;
        let name = line.split(' ').next()?;
        (line == self.line(name)).then(|| name.to_owned())
    }

    fn write(&self, name: &str) -> Result<()> {
        // Processes that start at the same time use different temporary files.
        let partial = self.path.with_extension(std::process::id().to_string());
        let written = fs::write(&partial, self.line(name));
        let written = written.and_then(|()| fs::rename(&partial, &self.path));
        written.map_err(|error| cache_error(&self.path, &error))
    }
}

/// A hash of the whole content of a checkpoint. Mapped memory is released tensor by tensor.
fn hash(source: &dyn WeightSource, threads: usize, progress: &Progress<'_>) -> Result<String> {
    let tensors = source.tensors();
    let bytes = |tensor: &TensorInfo| tensor.format.bytes_for(tensor.rows * tensor.cols) as u64;
    let (done, total) = (AtomicU64::new(0), tensors.iter().map(bytes).sum());
    let hashes = parallel_map(tensors, threads, |tensor| {
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
    Ok(short_hash(hashes.concat()))
}

/// The first half of the SHA-256 hash, in hexadecimal.
fn short_hash(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes)[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn layout(tensor: &TensorInfo, format: TileFormat) -> WeightLayout {
    WeightLayout { format, rows: tensor.rows, cols: tensor.cols }
}

fn convert(
    source: &dyn WeightSource,
    tensor: &TensorInfo,
    layout: WeightLayout,
    path: &Path,
    report: impl Fn(usize),
) -> Result<()> {
    let view = source.weight(&tensor.name)?;
    let mut writer = Writer::new(path, &tensor.name, layout)?;
    for bytes in layout.encode_columns(&view) {
        writer.write(&bytes)?;
        report(bytes.len());
    }
    writer.finish()?;
    source.release(&tensor.name);
    Ok(())
}

/// Maps items on several threads, in order. After an error no further items are begun.
fn parallel_map<T: Sync, O: Send>(
    items: &[T],
    threads: usize,
    task: impl Fn(&T) -> Result<O> + Sync,
) -> Result<Vec<O>> {
    let next = AtomicUsize::new(0);
    let worker = || -> Result<Vec<(usize, O)>> {
        let mut results = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return Ok(results) };
            results.push((
                at,
                task(item).inspect_err(|_| next.store(items.len(), Ordering::Relaxed))?,
            ));
        }
    };
    let results = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a task does not panic")).collect()
    });
    let results: Result<Vec<Vec<_>>> = results;
    let mut results: Vec<(usize, O)> = results?.into_iter().flatten().collect();
    results.sort_by_key(|(at, _)| *at);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
