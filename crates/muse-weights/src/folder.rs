//! The source of a checkpoint's files: a folder on disk, or named bytes in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, escaped};
use crate::map::Bytes;

/// A file of a checkpoint and its name in messages.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
}

/// Files by name.
#[derive(Debug)]
pub(crate) enum Folder {
    Disk(PathBuf),
    Memory(BTreeMap<String, Bytes>),
}

impl Folder {
    /// Opens the file of that name, if there is one. A file in memory can be taken once.
    pub(crate) fn take(&mut self, name: &str) -> Result<Option<SourceFile>> {
        match self {
            Self::Disk(folder) => {
                let path = folder.join(name);
                if !path.exists() {
                    return Ok(None);
                }
                let bytes = Bytes::map(&path)?;
                Ok(Some(SourceFile { name: path.display().to_string(), bytes }))
            }
            Self::Memory(files) => {
                Ok(files.remove(name).map(|bytes| SourceFile { name: name.to_owned(), bytes }))
            }
        }
    }

    /// Opens the file of that name, which is required because `reason`.
    pub(crate) fn require(&mut self, name: &str, reason: &str) -> Result<SourceFile> {
        self.take(name)?.ok_or_else(|| Error::NotACheckpoint {
            path: self.path(),
            found: format!("no file `{}`", escaped(name)),
            expected: format!("it, because {reason}"),
        })
    }

    /// Names of the files, sorted. Names that are not UTF-8 are left out.
    pub(crate) fn names(&self) -> Vec<String> {
        match self {
            Self::Disk(folder) => disk_names(folder),
            Self::Memory(files) => files.keys().cloned().collect(),
        }
    }

    /// The folder's name in messages.
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Disk(folder) => folder.display().to_string(),
            Self::Memory(_) => "files in memory".to_owned(),
        }
    }
}

fn disk_names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}
