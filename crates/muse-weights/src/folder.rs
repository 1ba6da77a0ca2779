//! The source of a checkpoint's files: a folder on disk, or named bytes in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, escaped};
use crate::map::Bytes;
use crate::open;

/// A file of a checkpoint and its name in messages.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
}

impl SourceFile {
    /// The bytes of a text file, without a byte order mark.
    pub(crate) fn text(&self) -> Result<&[u8]> {
        open::without_byte_order_mark(&self.bytes).map_err(|found| Error::Malformed {
            file: self.name.clone(),
            location: "start".to_owned(),
            found: found.to_owned(),
            expected: "text in UTF-8: save it in that encoding".to_owned(),
        })
    }

    /// Refuses a file that was changed since it was opened: what was read of it may be wrong.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        match self.bytes.change() {
            None => Ok(()),
            Some(found) => Err(Error::Malformed {
                file: self.name.clone(),
                location: "while it was in use".to_owned(),
                found,
                expected: "the file to stay as it was opened: restore it and start again"
                    .to_owned(),
            }),
        }
    }
}

/// Files by name.
#[derive(Debug)]
pub(crate) enum Folder {
    Disk(PathBuf),
    Memory(BTreeMap<String, Bytes>),
}

impl Folder {
    /// Opens the file of that name, if there is one. A file in memory can be taken once.
    ///
    /// # Errors
    /// When the name is in use by something else than a readable regular file.
    pub(crate) fn take(&mut self, name: &str) -> Result<Option<SourceFile>> {
        match self {
            Self::Disk(folder) => {
                let path = folder.join(name);
                let name = path.display().to_string();
                let exists = open::exists(&path).map_err(|source| Error::read(&name, source))?;
                if !exists {
                    return Ok(None);
                }
                Ok(Some(SourceFile { name, bytes: Bytes::map(&path)? }))
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
