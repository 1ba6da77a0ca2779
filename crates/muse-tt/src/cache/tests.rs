//! Tests of the weight cache without a device: its content, interruptions, and damaged files.

use std::collections::BTreeMap;
use std::sync::Mutex;

use muse_core::contract::{
    CheckpointSpec, GenerationDefaults, Vocabulary, WeightSource, WeightView,
};
use muse_core::quant::Format;

use super::*;

/// A checkpoint in memory, which records the names of the tensors that are read and released.
pub(crate) struct Source {
    spec: CheckpointSpec,
    generation: GenerationDefaults,
    tensors: Vec<TensorInfo>,
    bytes: BTreeMap<String, Vec<u8>>,
    read: Mutex<Vec<String>>,
    released: Mutex<Vec<String>>,
    stamp: Option<String>,
    /// Reading this tensor fails, which interrupts the conversion.
    missing: Option<&'static str>,
}

impl Source {
    pub(crate) fn new(matrices: &[(&str, usize, usize)]) -> Self {
        let (mut tensors, mut bytes) = (Vec::new(), BTreeMap::new());
        for (seed, (name, rows, cols)) in matrices.iter().enumerate() {
            let (name, format) = ((*name).to_owned(), Format::F32);
            let values = (0..rows * cols).map(|i| ((i * 7 + seed) % 97) as f32 - 48.0);
            bytes.insert(name.clone(), values.flat_map(f32::to_le_bytes).collect());
            tensors.push(TensorInfo { name, format, rows: *rows, cols: *cols });
        }
        Self {
            spec: CheckpointSpec::default(),
            generation: GenerationDefaults::default(),
            tensors,
            bytes,
            read: Mutex::default(),
            released: Mutex::default(),
            stamp: None,
            missing: None,
        }
    }

    fn names_read(&self) -> Vec<String> {
        taken(&self.read)
    }
}

/// Takes the recorded names, sorted.
fn taken(names: &Mutex<Vec<String>>) -> Vec<String> {
    let mut names = std::mem::take(&mut *names.lock().unwrap());
    names.sort();
    names
}

impl WeightSource for Source {
    fn spec(&self) -> &CheckpointSpec {
        &self.spec
    }
    fn generation(&self) -> &GenerationDefaults {
        &self.generation
    }
    fn vocabulary(&self) -> Result<Option<Vocabulary>> {
        Ok(None)
    }
    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }
    fn stamp(&self) -> Option<String> {
        self.stamp.clone()
    }
    fn release(&self, name: &str) {
        self.released.lock().unwrap().push(name.to_owned());
    }
    fn weight(&self, name: &str) -> Result<WeightView<'_>> {
        self.read.lock().unwrap().push(name.to_owned());
        if self.missing == Some(name) {
            return Err(Error::Corrupt(format!("no {name} in the checkpoint")));
        }
        let info = self.tensors.iter().find(|tensor| tensor.name == name).unwrap();
        let TensorInfo { name, format, rows, cols } = info;
        let bytes = self.bytes[name].as_slice().into();
        Ok(WeightView { name, format: *format, rows: *rows, cols: *cols, bytes })
    }
}

const MATRICES: [(&str, usize, usize); 3] =
    [("blk.0.attn_q.weight", 70, 96), ("blk.0.ffn_up.weight", 64, 512), ("norm.weight", 1, 96)];

fn formats(tensor: &TensorInfo) -> Option<TileFormat> {
    match tensor.name.as_str() {
        "norm.weight" => None,
        "blk.0.ffn_up.weight" => Some(TileFormat::Bfp4),
        _ => Some(TileFormat::Bfp8),
    }
}

fn read(cache: &WeightCache, tensor: &TensorInfo, format: TileFormat) -> Result<Vec<u8>> {
    cache.read(&tensor.name, layout(tensor, format))
}

/// Ignores progress.
pub(crate) const NO_PROGRESS: &Progress<'static> = &|_, _| ();

fn open(root: &Path, source: &Source) -> WeightCache {
    WeightCache::open(root, source, 2, NO_PROGRESS).unwrap()
}

fn fill(cache: &WeightCache, source: &Source) -> Result<()> {
    cache.fill(source, &formats, 2, NO_PROGRESS)
}

#[test]
fn the_cache_holds_weights_in_their_layout() {
    let (root, source) = (tempfile::tempdir().unwrap(), Source::new(&MATRICES));
    let cache = open(root.path(), &source);
    let reports = Mutex::new(Vec::new());
    cache
        .fill(&source, &formats, 2, &|done, total| reports.lock().unwrap().push((done, total)))
        .unwrap();
    let mut total = 0;
    for tensor in &source.tensors[..2] {
        let format = formats(tensor).unwrap();
        let (layout, bytes) = (layout(tensor, format), read(&cache, tensor, format).unwrap());
        let values = source.weight(&tensor.name).unwrap().to_f32();
        let stripes = values.chunks(32 * tensor.cols).enumerate();
        let expected: Vec<u8> =
            stripes.flat_map(|(at, stripe)| layout.encode_column(at, stripe)).collect();
        assert_eq!(bytes, expected, "{}", tensor.name);
        total += bytes.len() as u64;
    }
    let reports = reports.into_inner().unwrap();
    assert!(reports.iter().all(|(done, of)| *of == total && *done <= total));
    assert_eq!(reports.iter().map(|(done, _)| *done).max(), Some(total));
    source.names_read();
    fill(&cache, &source).unwrap();
    assert_eq!(source.names_read(), [""; 0], "nothing is converted twice");
}

#[test]
fn an_interrupted_conversion_continues_and_uses_no_partial_file() {
    let (root, mut source) = (tempfile::tempdir().unwrap(), Source::new(&MATRICES));
    let cache = open(root.path(), &source);
    source.missing = Some("blk.0.ffn_up.weight");
    fill(&cache, &source).unwrap_err();
    let up = &source.tensors[1];
    let path = cache.path(&up.name, TileFormat::Bfp4).unwrap();
    // The state after a process was killed while it wrote.
    let mut writer = Writer::new(&path, &up.name, layout(up, TileFormat::Bfp4)).unwrap();
    writer.write(&[1; 1000]).unwrap();
    drop(writer);
    assert!(read(&cache, up, TileFormat::Bfp4).unwrap_err().to_string().contains("start again"));
    source.names_read();
    source.missing = None;
    fill(&cache, &source).unwrap();
    assert_eq!(source.names_read(), ["blk.0.ffn_up.weight"]);
    read(&cache, &source.tensors[1], TileFormat::Bfp4).unwrap();
    let files = fs::read_dir(&cache.folder).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(files.into_iter().all(|name| !name.to_string_lossy().ends_with(".partial")));
}

#[test]
fn a_damaged_file_is_an_error_and_is_converted_again_once_deleted() {
    let (root, source) = (tempfile::tempdir().unwrap(), Source::new(&MATRICES));
    let cache = open(root.path(), &source);
    let tensor = &source.tensors[0];
    let path = cache.path(&tensor.name, TileFormat::Bfp8).unwrap();
    fill(&cache, &source).unwrap();
    let intact = fs::read(&path).unwrap();
    let (last, mut flipped, mut foreign) = (intact.len() - 1, intact.clone(), intact.clone());
    flipped[last] ^= 1;
    foreign[0] = b'x';
    for bytes in [&intact[..last], &intact[..3], &[], &flipped, &foreign] {
        fs::write(&path, bytes).unwrap();
        let error = read(&cache, tensor, TileFormat::Bfp8).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
        let message = error.to_string();
        assert!(message.contains("attn_q") && message.contains("delete the file"), "{message}");
    }
    // An intact file of another weight is refused too.
    fs::copy(cache.path("blk.0.ffn_up.weight", TileFormat::Bfp4).unwrap(), &path).unwrap();
    read(&cache, tensor, TileFormat::Bfp8).unwrap_err();
    fs::remove_file(&path).unwrap();
    fill(&cache, &source).unwrap();
    assert_eq!(fs::read(&path).unwrap(), intact);
}

#[test]
fn checkpoints_do_not_share_folders() {
    let root = tempfile::tempdir().unwrap();
    let folder = |source: &Source| open(root.path(), source).folder;
    let (mut source, first) = (Source::new(&MATRICES), folder(&Source::new(&MATRICES)));
    assert_eq!(folder(&source), first);
    source.bytes.get_mut("norm.weight").unwrap()[5] ^= 1;
    assert_ne!(folder(&source), first);
}

#[test]
fn a_checkpoint_is_hashed_once_and_its_memory_released() {
    let (root, mut source) = (tempfile::tempdir().unwrap(), Source::new(&MATRICES));
    let names = MATRICES.map(|(name, ..)| name);
    source.stamp = Some("model 17 monday".to_owned());
    let reports = Mutex::new(Vec::new());
    let report = |done: u64, total: u64| reports.lock().unwrap().push((done, total));
    let first = WeightCache::open(root.path(), &source, 2, &report).unwrap().folder;
    assert_eq!(
        (source.names_read(), taken(&source.released)),
        (names.map(str::to_owned).into(), names.map(str::to_owned).into())
    );
    let total: u64 = source.bytes.values().map(|bytes| bytes.len() as u64).sum();
    assert_eq!(reports.into_inner().unwrap().into_iter().max(), Some((total, total)));
    assert_eq!(open(root.path(), &source).folder, first);
    assert_eq!(source.names_read(), [""; 0], "the stamp is recorded");
    // A new stamp with the same content: the converted weights remain valid.
    source.stamp = Some("model 17 tuesday".to_owned());
    assert_eq!(open(root.path(), &source).folder, first);
    assert_eq!(source.names_read(), names);
    source.bytes.get_mut("norm.weight").unwrap()[5] ^= 1;
    source.stamp = Some("model 17 wednesday".to_owned());
    assert_ne!(open(root.path(), &source).folder, first);
}

#[test]
fn a_wrong_stamp_record_is_rewritten() {
    let (root, mut source) = (tempfile::tempdir().unwrap(), Source::new(&MATRICES));
    source.stamp = Some("model".to_owned());
    let first = open(root.path(), &source).folder;
    let record = root.path().join(format!("{}.known", short_hash("model")));
    let valid = fs::read_to_string(&record).unwrap();
    let other = valid.replacen(&valid[..4], "0000", 1);
    for wrong in ["", "../elsewhere", &valid[..20], &other] {
        fs::write(&record, wrong).unwrap();
        source.names_read();
        assert_eq!(open(root.path(), &source).folder, first);
        assert_eq!(source.names_read().len(), 3, "{wrong:?}");
        assert_eq!(fs::read_to_string(&record).unwrap(), valid);
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error() {
    let (root, source) = (tempfile::tempdir().unwrap(), Source::new(&MATRICES));
    let root = root.path().join("file");
    fs::write(&root, "").unwrap();
    let Err(error) = WeightCache::open(&root, &source, 1, NO_PROGRESS) else {
        panic!("a file is not a folder")
    };
    assert!(error.to_string().contains("choose another folder"), "{error}");
}

#[test]
fn a_name_that_is_a_path_is_refused() {
    let (root, source) = (tempfile::tempdir().unwrap(), Source::new(&[("../q", 32, 32)]));
    let cache = open(root.path(), &source);
    let error = fill(&cache, &source).unwrap_err();
    assert!(error.to_string().contains("repair the checkpoint"), "{error}");
}
