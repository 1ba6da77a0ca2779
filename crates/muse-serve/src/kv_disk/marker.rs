//! The marker file of a folder of KV blocks: says that the folder is one, in which format, and is
//! locked while a process uses it.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::path::Path;

/// Name of the file.
pub(super) const NAME: &str = "muse-kv-blocks";
/// First line of the file; the number is the format of the folder.
const TITLE: &str = "muse KV blocks, format ";
const FORMAT: u32 = 1;
/// Second line: a random number of this folder, so that nobody can prepare two prefixes with one
/// hash.
const SALT: &str = "salt ";
/// A marker is shorter.
const MAX_BYTES: u64 = 1024;
/// What an empty file system holds.
const LOST_AND_FOUND: &str = "lost+found";

/// A locked marker.
pub(super) struct Marker {
    salt: [u64; 2],
    /// Unlocked when it is closed.
    _file: File,
}

/// Why a folder is not used.
#[derive(Debug)]
pub(super) enum OpenError {
    /// It cannot be read or written.
    Io(io::Error),
    /// It belongs to somebody else.
    Refused(String),
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Marker {
    /// Locks the marker of a folder. One is written into an empty folder; a folder that holds
    /// other files and no marker is not touched.
    pub(super) fn open(folder: &Path) -> Result<Self, OpenError> {
        let path = folder.join(NAME);
        match fs::symlink_metadata(&path) {
            Ok(found) if !found.is_file() => return Err(refused(format!("{NAME} is no file"))),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => check_empty(folder)?,
            Err(error) => return Err(error.into()),
        }
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Refused(
                    "another server uses this folder; name a different folder for each".to_owned(),
                ));
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let mut text = String::new();
        (&file).take(MAX_BYTES).read_to_string(&mut text)?;
        let salt = match text.is_empty() {
            // New, or its writer was interrupted before it wrote any block.
            true => {
                let salt = random();
                file.write_all(render(salt).as_bytes())?;
                salt
            }
            false => parse(&text)?,
        };
        Ok(Self { salt, _file: file })
    }

    /// The random number of this folder.
    pub(super) fn salt(&self) -> [u64; 2] {
        self.salt
    }
}

fn refused(what: impl fmt::Display) -> OpenError {
    OpenError::Refused(format!("{what}; name an empty or a new folder"))
}

fn check_empty(folder: &Path) -> Result<(), OpenError> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if name != LOST_AND_FOUND {
            return Err(refused(format!(
                "the folder holds {name:?} and is not marked as one of KV blocks"
            )));
        }
    }
    Ok(())
}

fn random() -> [u64; 2] {
    [RandomState::new(), RandomState::new()].map(|state| state.build_hasher().finish())
}

fn render([high, low]: [u64; 2]) -> String {
    format!("{TITLE}{FORMAT}\n{SALT}{high:016x}{low:016x}\n")
}

fn parse(text: &str) -> Result<[u64; 2], OpenError> {
    let damaged = || refused(format!("{NAME} is damaged or not written by muse"));
    let mut lines = text.lines();
    let format = lines.next().and_then(|line| line.strip_prefix(TITLE)).ok_or_else(damaged)?;
    if format != FORMAT.to_string() {
        return Err(refused(format!(
            "its KV blocks have format {format:?}, this version of muse writes format {FORMAT}"
        )));
    }
    let hex = lines.next().and_then(|line| line.strip_prefix(SALT)).ok_or_else(damaged)?;
    let lane = |hex| u64::from_str_radix(hex, 16).ok();
    let (high, low) = hex.split_at_checked(16).ok_or_else(damaged)?;
    let salt = [lane(high).ok_or_else(damaged)?, lane(low).ok_or_else(damaged)?];
    if render(salt) == text { Ok(salt) } else { Err(damaged()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and contents of all files.
    fn contents(folder: &Path) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| entry.expect("a file"))
            .map(|entry| {
                let text = fs::read_to_string(entry.path()).expect("a text");
                (entry.file_name().into_string().expect("UTF-8"), text)
            })
            .collect();
        found.sort();
        found
    }

    #[track_caller]
    fn check_refused(folder: &Path, words: &str) {
        match Marker::open(folder) {
            Err(OpenError::Refused(why)) => assert!(why.contains(words), "{why}"),
            Err(OpenError::Io(error)) => panic!("{error}"),
            Ok(_) => panic!("not refused: {words}"),
        }
    }

    #[test]
    fn a_foreign_folder_is_refused_and_nothing_in_it_is_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("notes.txt"), "mine").expect("written");
        fs::write(folder.path().join(format!("{:032x}.kv", 7)), "mine too").expect("written");
        let before = contents(folder.path());
        check_refused(folder.path(), "not marked");
        assert_eq!(contents(folder.path()), before);
    }

    #[test]
    fn a_marker_makes_a_folder_ours_whoever_wrote_it() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join(LOST_AND_FOUND)).expect("a folder");
        let salt = Marker::open(folder.path()).expect("an empty file system").salt();
        assert_eq!(Marker::open(folder.path()).expect("marked").salt(), salt);
        let other = tempfile::tempdir().expect("a folder");
        fs::write(other.path().join("notes.txt"), "x").expect("written");
        fs::write(other.path().join(NAME), render([1, 2])).expect("written");
        assert_eq!(Marker::open(other.path()).expect("marked").salt(), [1, 2]);
    }

    #[test]
    fn markers_of_other_formats_and_damaged_ones_are_refused() {
        let whole = render([1, 2]);
        let other = whole.replace("format 1", "format 2");
        for (text, words) in [
            (other.as_str(), "format \"2\""),
            ("my kv blocks\n", "damaged"),
            (&whole[..whole.len() - 2], "damaged"),
            (&format!("{whole}more"), "damaged"),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            fs::write(folder.path().join(NAME), text).expect("written");
            check_refused(folder.path(), words);
            assert_eq!(contents(folder.path()), [(NAME.to_owned(), text.to_owned())]);
        }
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join(NAME)).expect("a folder");
        check_refused(folder.path(), "no file");
    }
}
