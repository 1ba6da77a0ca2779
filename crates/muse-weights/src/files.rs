//! Opens a path as the kind of checkpoint it is: a HuggingFace folder or GGUF files.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, Result, escaped};
use crate::folder::Folder;
use crate::gguf::GgufFiles;
use crate::hf::HfFolder;
use crate::map::Bytes;
use crate::open;

/// The files of a checkpoint, their containers parsed, their settings not yet read.
pub(crate) enum Files {
    HuggingFace(Box<HfFolder>),
    Gguf(GgufFiles),
}

impl Files {
    /// Opens a folder as HuggingFace, a file as GGUF.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let metadata = open::metadata(path);
        let metadata =
            metadata.map_err(|source| Error::read(&path.display().to_string(), source))?;
        if metadata.is_dir() {
            return Self::huggingface(Folder::Disk(path.to_owned()));
        }
        let expected = "a folder with config.json and safetensors, or a GGUF file";
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(folder), Some(name)) = (path.parent(), name) else {
            return Err(not_a_checkpoint(path, "a name that is not UTF-8", expected));
        };
        if name.ends_with(".safetensors") || name.ends_with(".json") {
            let expected = "the folder that holds it";
            return Err(not_a_checkpoint(path, "one file of a HuggingFace folder", expected));
        }
        GgufFiles::open(Folder::Disk(folder.to_owned()), name).map(Self::Gguf)
    }

    fn huggingface(folder: Folder) -> Result<Self> {
        Ok(Self::HuggingFace(Box::new(HfFolder::open(folder)?)))
    }

    /// Opens files in memory: as GGUF when a name ends in `.gguf`, else as a HuggingFace folder.
    pub(crate) fn in_memory(files: BTreeMap<String, Bytes>) -> Result<Self> {
        let gguf = files.keys().find(|name| name.ends_with(".gguf")).cloned();
        match gguf {
            Some(first) => GgufFiles::open(Folder::Memory(files), &first).map(Self::Gguf),
            None => Self::huggingface(Folder::Memory(files)),
        }
    }
}

fn not_a_checkpoint(path: &Path, found: &str, expected: &str) -> Error {
    Error::NotACheckpoint {
        path: escaped(&path.display().to_string()),
        found: found.to_owned(),
        expected: expected.to_owned(),
    }
}
