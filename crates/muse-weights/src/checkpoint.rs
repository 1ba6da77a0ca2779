//! An open checkpoint: checked as a whole, then served tensor by tensor.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use muse_core::contract::{
    CheckpointSpec, GenerationDefaults, TensorInfo, Vocabulary, WeightSource, WeightView,
};

use crate::error::{Error, Result};
use crate::folder::{Folder, SourceFile};
use crate::hf::HfFolder;
use crate::layout::{Dialect, parts};
use crate::map::Bytes;
use crate::tensor::{Entry, matched};

/// A checkpoint whose settings and tensors agree: every tensor of the spec is there, in its shape,
/// and nothing else is that would change the numbers.
#[derive(Debug)]
pub struct Checkpoint {
    path: String,
    files: Vec<SourceFile>,
    spec: CheckpointSpec,
    generation: GenerationDefaults,
    vocabulary: VocabularySource,
    infos: Vec<TensorInfo>,
    entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
    ignored: Vec<String>,
}

#[derive(Debug)]
enum VocabularySource {
    HuggingFace(Option<SourceFile>),
}

impl Checkpoint {
    /// Opens a HuggingFace folder or a GGUF file, any part of a split one. Files are mapped: they
    /// must stay as they are while the checkpoint is open.
    ///
    /// # Errors
    /// [`Error`] names the file, the key or tensor, what was found and what was expected.
    pub fn open(path: &Path) -> Result<Self> {
        Self::from_huggingface(HfFolder::open(Folder::Disk(path.to_owned()))?)
    }

    /// Opens files that are part of the program, by name, as [`Checkpoint::open`] would open
    /// their folder, or the split GGUF file they are.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_memory(files: &[(&str, &'static [u8])]) -> Result<Self> {
        Self::from_files(files.iter().map(|&(name, bytes)| (name.to_owned(), bytes.into())))
    }

    /// As [`Checkpoint::from_memory`], of bytes that live anywhere.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_files(files: impl IntoIterator<Item = (String, Bytes)>) -> Result<Self> {
        let files: BTreeMap<String, Bytes> = files.into_iter().collect();
        Self::from_huggingface(HfFolder::open(Folder::Memory(files))?)
    }

    /// Tensors of the files that nothing needs.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    fn from_huggingface(folder: HfFolder) -> Result<Self> {
        let model = folder.model()?;
        let parts = parts(Dialect::HuggingFace, &model.spec, model.qk_scale, &|_| false);
        let matched = matched(&folder.path, &folder.files, &folder.tensors, parts)?;
        let vocabulary = VocabularySource::HuggingFace(folder.tokenizer);
        let by_name = index(&matched.infos);
        Ok(Self {
            path: folder.path,
            files: folder.files,
            spec: model.spec,
            generation: model.generation,
            vocabulary,
            infos: matched.infos,
            entries: matched.entries,
            by_name,
            ignored: matched.ignored,
        })
    }
}

fn index(infos: &[TensorInfo]) -> HashMap<String, usize> {
    infos.iter().enumerate().map(|(i, info)| (info.name.clone(), i)).collect()
}

impl WeightSource for Checkpoint {
    fn spec(&self) -> &CheckpointSpec {
        &self.spec
    }

    fn generation(&self) -> &GenerationDefaults {
        &self.generation
    }

    fn vocabulary(&self) -> muse_core::Result<Option<Vocabulary>> {
        match &self.vocabulary {
            VocabularySource::HuggingFace(file) => {
                Ok(file.as_ref().map(|file| Vocabulary::HuggingFace(file.bytes.to_vec())))
            }
        }
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn weight(&self, name: &str) -> muse_core::Result<WeightView<'_>> {
        let Some(&i) = self.by_name.get(name) else {
            return Err(Error::Tensor {
                file: self.path.clone(),
                tensor: name.to_owned(),
                found: "no such tensor".to_owned(),
                expected: "one of the checkpoint's tensors".to_owned(),
            }
            .into());
        };
        let info = &self.infos[i];
        Ok(WeightView {
            name: &info.name,
            format: info.format,
            rows: info.rows,
            cols: info.cols,
            bytes: self.entries[i].read(&self.files, info),
        })
    }
}
