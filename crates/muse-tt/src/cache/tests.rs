//! The cache without a device: what is kept is what is wanted, and nothing half-written is used.

use std::collections::BTreeMap;
use std::sync::Mutex;

use muse_core::contract::{
    CheckpointSpec, GenerationDefaults, Vocabulary, WeightSource, WeightView,
};
use muse_core::quant::Format;

use super::*;

/// Matrices in memory; counts how often each is asked for.
pub(crate) struct Source {
    spec: CheckpointSpec,
    generation: GenerationDefaults,
    tensors: Vec<TensorInfo>,
    bytes: BTreeMap<String, Vec<u8>>,
    asked: Mutex<Vec<String>>,
    /// Ends the conversion, as a full disk or a kill would.
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
            asked: Mutex::default(),
            missing: None,
        }
    }

    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.sort();
        asked
    }
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
    fn weight(&self, name: &str) -> Result<WeightView<'_>> {
        self.asked.lock().unwrap().push(name.to_owned());
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

fn fill(cache: &WeightCache, source: &Source) -> Result<()> {
    cache.fill(source, &formats, 2, &|_, _| ())
}

#[test]
fn what_is_kept_is_the_matrix_in_its_layout() {
    let (place, source) = (tempfile::tempdir().unwrap(), Source::new(&MATRICES));
    let cache = WeightCache::open(place.path(), &source, 2).unwrap();
    let told = Mutex::new(Vec::new());
    cache
        .fill(&source, &formats, 2, &|done, total| told.lock().unwrap().push((done, total)))
        .unwrap();
    let mut total = 0;
    for tensor in &source.tensors[..2] {
        let format = formats(tensor).unwrap();
        let (layout, bytes) = (layout(tensor, format), read(&cache, tensor, format).unwrap());
        let values = source.weight(&tensor.name).unwrap().to_f32();
        let stripes = values.chunks(32 * tensor.cols).enumerate();
        let want: Vec<u8> = stripes.flat_map(|(at, stripe)| layout.encode(at, stripe)).collect();
        assert_eq!(bytes, want, "{}", tensor.name);
        total += bytes.len() as u64;
    }
    let told = told.into_inner().unwrap();
    assert!(told.iter().all(|(done, of)| *of == total && *done <= total));
    assert_eq!(told.iter().map(|(done, _)| *done).max(), Some(total));
    source.asked();
    fill(&cache, &source).unwrap();
    assert_eq!(source.asked(), [""; 0], "nothing is converted twice");
}

#[test]
fn after_an_interruption_it_goes_on_and_uses_nothing_half_written() {
    let (place, mut source) = (tempfile::tempdir().unwrap(), Source::new(&MATRICES));
    let cache = WeightCache::open(place.path(), &source, 1).unwrap();
    source.missing = Some("blk.0.ffn_up.weight");
    fill(&cache, &source).unwrap_err();
    let up = &source.tensors[1];
    let path = cache.path(&up.name, TileFormat::Bfp4).unwrap();
    // As a process leaves it that is killed while it writes.
    let mut writer = Writer::new(&path, &up.name, layout(up, TileFormat::Bfp4)).unwrap();
    writer.write(&[1; 1000]).unwrap();
    drop(writer);
    assert!(read(&cache, up, TileFormat::Bfp4).unwrap_err().to_string().contains("start again"));
    source.asked();
    source.missing = None;
    fill(&cache, &source).unwrap();
    assert_eq!(source.asked(), ["blk.0.ffn_up.weight"]);
    read(&cache, &source.tensors[1], TileFormat::Bfp4).unwrap();
    let left = fs::read_dir(&cache.folder).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().ends_with(".partial")));
}

#[test]
fn a_broken_file_is_told_and_made_anew_once_deleted() {
    let (place, source) = (tempfile::tempdir().unwrap(), Source::new(&MATRICES));
    let cache = WeightCache::open(place.path(), &source, 2).unwrap();
    let tensor = &source.tensors[0];
    let path = cache.path(&tensor.name, TileFormat::Bfp8).unwrap();
    fill(&cache, &source).unwrap();
    let whole = fs::read(&path).unwrap();
    let (last, mut flipped, mut foreign) = (whole.len() - 1, whole.clone(), whole.clone());
    flipped[last] ^= 1;
    foreign[0] = b'x';
    for bytes in [&whole[..last], &whole[..3], &[], &flipped, &foreign] {
        fs::write(&path, bytes).unwrap();
        let error = read(&cache, tensor, TileFormat::Bfp8).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
        let message = error.to_string();
        assert!(message.contains("attn_q") && message.contains("delete the file"), "{message}");
    }
    // A whole file of another matrix is not this one either.
    fs::copy(cache.path("blk.0.ffn_up.weight", TileFormat::Bfp4).unwrap(), &path).unwrap();
    read(&cache, tensor, TileFormat::Bfp8).unwrap_err();
    fs::remove_file(&path).unwrap();
    fill(&cache, &source).unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole);
}

#[test]
fn another_checkpoint_has_another_folder() {
    let place = tempfile::tempdir().unwrap();
    let open = |source: &Source| WeightCache::open(place.path(), source, 2).unwrap().folder;
    let (mut source, first) = (Source::new(&MATRICES), open(&Source::new(&MATRICES)));
    assert_eq!(open(&source), first);
    source.bytes.get_mut("norm.weight").unwrap()[5] ^= 1;
    assert_ne!(open(&source), first);
}

#[test]
fn a_folder_that_cannot_be_written_is_told() {
    let (place, source) = (tempfile::tempdir().unwrap(), Source::new(&MATRICES));
    let root = place.path().join("file");
    fs::write(&root, "").unwrap();
    let Err(error) = WeightCache::open(&root, &source, 1) else { panic!("a file is no folder") };
    assert!(error.to_string().contains("choose another folder"), "{error}");
}

#[test]
fn a_name_that_leads_elsewhere_is_refused() {
    let (place, source) = (tempfile::tempdir().unwrap(), Source::new(&[("../q", 32, 32)]));
    let cache = WeightCache::open(place.path(), &source, 1).unwrap();
    let error = fill(&cache, &source).unwrap_err();
    assert!(error.to_string().contains("repair the checkpoint"), "{error}");
}
