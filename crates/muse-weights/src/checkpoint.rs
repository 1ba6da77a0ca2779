//! An open checkpoint: checked as a whole when opened, then read tensor by tensor.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use muse_core::contract::{
    CheckpointSpec, GenerationDefaults, TensorInfo, Vocabulary, WeightSource, WeightView,
};

use crate::error::{Error, Result};
use crate::files::Files;
use crate::folder::SourceFile;
use crate::gguf::{self, GgufModel, Header};
use crate::hf::{HfFolder, HfModel};
use crate::layout::{Naming, tensor_plans};
use crate::map::Bytes;
use crate::tensor::{Entry, Matched, match_tensors};

/// A checkpoint whose settings and tensors agree: it holds every tensor of the spec in its shape,
/// and no other tensor that would change the numbers.
#[derive(Debug)]
pub struct Checkpoint {
    path: String,
    files: Vec<SourceFile>,
    spec: CheckpointSpec,
    generation: GenerationDefaults,
    origin: Origin,
    infos: Vec<TensorInfo>,
    entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
    ignored: Vec<String>,
}

/// What the kind of the files has beyond spec and tensors.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A folder: tokenizer.json and the chat template, where they exist.
    HuggingFace { tokenizer: Option<SourceFile>, chat_template: Option<String> },
    /// GGUF files: the header of the first one.
    Gguf(Header),
}

impl Checkpoint {
    /// Opens a HuggingFace folder or a GGUF file (any part of a split one). Files are mapped: they
    /// must not change while the checkpoint is open.
    ///
    /// # Errors
    /// [`Error`] names the file, the key or tensor, what was found and what was expected.
    pub fn open(path: &Path) -> Result<Self> {
        Self::build(Files::open(path)?)
    }

    /// Opens files that are part of the program, given by name: those of a HuggingFace folder, or
    /// the parts of a GGUF file.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_memory(files: &[(&str, &'static [u8])]) -> Result<Self> {
        Self::from_files(files.iter().map(|&(name, bytes)| (name.to_owned(), bytes.into())))
    }

    /// As [`Checkpoint::from_memory`], for any [`Bytes`].
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn from_files(files: impl IntoIterator<Item = (String, Bytes)>) -> Result<Self> {
        Self::build(Files::in_memory(files.into_iter().collect())?)
    }

    /// The chat template of the checkpoint, unrendered.
    ///
    /// # Errors
    /// When the key of a GGUF file is no string.
    pub fn chat_template(&self) -> Result<Option<String>> {
        match &self.origin {
            Origin::HuggingFace { chat_template, .. } => Ok(chat_template.clone()),
            Origin::Gguf(header) => gguf::chat_template(&self.files[0], header),
        }
    }

    /// Refuses a checkpoint whose files changed since it was opened. Call it after the last tensor
    /// was read: what was read of a changed file may be wrong.
    ///
    /// # Errors
    /// [`Error::Malformed`] names the file.
    pub fn check_unchanged(&self) -> Result<()> {
        let tokenizer = match &self.origin {
            Origin::HuggingFace { tokenizer, .. } => tokenizer.as_ref(),
            Origin::Gguf(_) => None,
        };
        self.files.iter().chain(tokenizer).try_for_each(SourceFile::check_unchanged)
    }

    /// Names of tensors that are in the files but have no effect.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    pub(crate) fn build(files: Files) -> Result<Self> {
        match files {
            Files::HuggingFace(folder) => {
                let HfModel { spec, generation, qk_scale } = folder.model()?;
                let plans = tensor_plans(Naming::HuggingFace, &spec, qk_scale, &|_| false);
                let matched = match_tensors(&folder.path, &folder.files, &folder.tensors, plans)?;
                let HfFolder { path, files, tokenizer, chat_template, .. } = *folder;
                let origin = Origin::HuggingFace { tokenizer, chat_template };
                Self::new(path, files, spec, generation, origin, matched)
            }
            Files::Gguf(gguf) => {
                let GgufModel { spec, generation } = gguf.model()?;
                let names: HashSet<&str> =
                    gguf.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
                let plans = tensor_plans(Naming::Gguf, &spec, 1.0, &|name| names.contains(name));
                let path = gguf.files[0].name.clone();
                let matched = match_tensors(&path, &gguf.files, &gguf.tensors, plans)?;
                let origin = Origin::Gguf(gguf.header);
                Self::new(path, gguf.files, spec, generation, origin, matched)
            }
        }
    }

    fn new(
        path: String,
        files: Vec<SourceFile>,
        spec: CheckpointSpec,
        generation: GenerationDefaults,
        origin: Origin,
        matched: Matched,
    ) -> Result<Self> {
        let Matched { infos, entries, ignored } = matched;
        let by_name = index(&infos);
        let checkpoint =
            Self { path, files, spec, generation, origin, infos, entries, by_name, ignored };
        checkpoint.check_unchanged()?;
        Ok(checkpoint)
    }

    /// The path, for messages.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// A tensor's bytes; as [`WeightSource::weight`], with this crate's error.
    pub(crate) fn tensor(&self, name: &str) -> Result<WeightView<'_>> {
        let Some(&i) = self.by_name.get(name) else {
            return Err(Error::Tensor {
                file: self.path.clone(),
                tensor: name.to_owned(),
                found: "no such tensor".to_owned(),
                expected: "one of the checkpoint's tensors".to_owned(),
            });
        };
        let info = &self.infos[i];
        // Tensors that were read before are as sound as this file.
        self.entries[i].file(&self.files).map_or(Ok(()), SourceFile::check_unchanged)?;
        Ok(WeightView {
            name: &info.name,
            format: info.format,
            rows: info.rows,
            cols: info.cols,
            bytes: self.entries[i].read(&self.files, info),
        })
    }

    /// The keys of a GGUF file with their types and values in the encoding of the file.
    pub(crate) fn encoded_keys<'a>(
        &'a self,
        header: &'a Header,
    ) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let bytes = &self.files[0].bytes;
        header.key_ranges.iter().map(|(key, range)| (key.as_str(), &bytes[range.clone()]))
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
        match &self.origin {
            Origin::HuggingFace { tokenizer, .. } => {
                let Some(file) = tokenizer else { return Ok(None) };
                let vocabulary = Vocabulary::HuggingFace(file.text()?.to_vec());
                file.check_unchanged()?;
                Ok(Some(vocabulary))
            }
            Origin::Gguf(header) => {
                let vocabulary = gguf::vocabulary(&self.files[0], header)?;
                self.files[0].check_unchanged()?;
                Ok(vocabulary)
            }
        }
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn weight(&self, name: &str) -> muse_core::Result<WeightView<'_>> {
        Ok(self.tensor(name)?)
    }

    fn stamp(&self) -> Option<String> {
        let stamp = |SourceFile { name, bytes }: &SourceFile| {
            Some(format!("{name:?} {} {:?}\n", bytes.len(), bytes.modified()?))
        };
        let files: Option<String> = self.files.iter().map(stamp).collect();
        Some(format!("{:?}\n{}", self.spec, files?))
    }

    fn release(&self, name: &str) {
        if let Some(&i) = self.by_name.get(name) {
            self.entries[i].release(&self.files);
        }
    }
}
