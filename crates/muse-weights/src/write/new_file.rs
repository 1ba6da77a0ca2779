//! A file that appears under its name only when it is complete, and what is left of one when its
//! process was killed.

use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{NamedTempFile, TempPath};

use crate::error::escaped;
use crate::open;

/// What an incomplete file has behind its name.
const ENDING: &str = ".muse-part";

/// The incomplete files of this process. Held while one of them is renamed or removed.
static INCOMPLETE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file under its name with `.muse-part` behind it. It is renamed once its bytes are on the disk,
/// never over another file, and removed when it is dropped before. While it is written it is locked;
/// one that is left of a process that was killed is not, and is written over.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    part: PathBuf,
    /// None once it is renamed.
    file: Option<NamedTempFile>,
}

impl NewFile {
    /// Creates a file that will be renamed to `path`.
    ///
    /// # Errors
    /// When the name is in use, another process writes the same file, there is no such folder, or
    /// the system refuses.
    pub fn create(path: &Path) -> io::Result<Self> {
        let (folder, part) = (folder(path), part_path(path)?);
        if open::exists(path).map_err(|error| name_folder(folder, error))? {
            return Err(name_in_use());
        }
        let file = lock_part(&part).map_err(|error| name_folder(folder, error))?;
        let mut incomplete = incomplete();
        file.set_len(0)?;
        let file = NamedTempFile::from_parts(file, TempPath::try_from_path(&part)?);
        incomplete.push(part.clone());
        Ok(Self { path: path.to_owned(), part, file: Some(file) })
    }

    /// Renames the file.
    ///
    /// # Errors
    /// When the name is in use by now, or the system refuses.
    pub fn finish(mut self) -> io::Result<()> {
        let file = self.file.take().expect("only `finish` takes it");
        file.as_file().sync_all()?;
        let _incomplete = incomplete();
        let named = file.persist_noclobber(&self.path);
        named.map(drop).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => name_in_use(),
            _ => error.error,
        })
    }

    fn file(&mut self) -> &mut NamedTempFile {
        self.file.as_mut().expect("only `finish` takes it")
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        let mut incomplete = incomplete();
        // Removes the file when it has not been renamed.
        drop(self.file.take());
        incomplete.retain(|part| *part != self.part);
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

/// Removes the files that this process has not completed. For a process that is about to end
/// without dropping them, as at a signal.
pub fn remove_incomplete_files() {
    for part in incomplete().drain(..) {
        // It may be gone already, and nobody is left who could do anything about another error.
        drop(fs::remove_file(part));
    }
}

/// Files in a folder that were left incomplete by processes that were killed, with their sizes in
/// bytes: those that no process has locked, sorted by name.
pub fn abandoned_files(folder: &Path) -> Vec<(PathBuf, u64)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let abandoned = |path: PathBuf| {
        let ours = path.file_name()?.to_str()?.ends_with(ENDING);
        let file = if ours { open::open_regular_file(&path).ok()? } else { return None };
        file.try_lock().ok()?;
        Some((path, file.metadata().ok()?.len()))
    };
    let mut files: Vec<_> = entries.filter_map(|entry| abandoned(entry.path())).collect();
    files.sort_unstable();
    files
}

/// The name of the file that is to be called `path` for as long as it is incomplete.
fn part_path(path: &Path) -> io::Result<PathBuf> {
    let Some(name) = path.file_name() else {
        let message = "the path has no file name at its end";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    };
    let mut name = name.to_owned();
    name.push(ENDING);
    Ok(path.with_file_name(name))
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn incomplete() -> MutexGuard<'static, Vec<PathBuf>> {
    INCOMPLETE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens or creates an incomplete file and locks it. Its bytes stay as they are.
fn lock_part(part: &Path) -> io::Result<File> {
    let check = |metadata: &Metadata| {
        let in_the_way = |error: io::Error| {
            io::Error::new(error.kind(), format!("`{}` is in the way: {error}", part.display()))
        };
        open::check(metadata).map_err(in_the_way)
    };
    loop {
        if open::exists(part)? {
            check(&part.symlink_metadata()?)?;
        }
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(
            &mut options,
            libc::O_NOFOLLOW | libc::O_NONBLOCK,
        );
        let file = options.open(part)?;
        check(&file.metadata()?)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = format!("another process is writing it, as `{}`", part.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
            }
            // A file system without locks: that nobody else writes has to be believed.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Whoever held the lock before may have renamed or removed it meanwhile.
        match part.symlink_metadata() {
            Ok(named) if is_same(&file.metadata()?, &named) => return Ok(file),
            _ => {}
        }
    }
}

#[cfg(unix)]
fn is_same(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}

/// The error of a file in a folder, or one that says what is wrong with the folder.
fn name_folder(folder: &Path, error: io::Error) -> io::Error {
    let name = escaped(&folder.display().to_string());
    let message = match error.kind() {
        io::ErrorKind::NotFound if !folder.exists() => {
            format!("the folder `{name}` does not exist; make it first")
        }
        io::ErrorKind::NotADirectory => format!("`{name}` is no folder"),
        io::ErrorKind::PermissionDenied => format!("no permission to write in the folder `{name}`"),
        io::ErrorKind::ReadOnlyFilesystem => {
            format!("the folder `{name}` is on a read-only file system")
        }
        _ => return error,
    };
    io::Error::new(error.kind(), message)
}

fn name_in_use() -> io::Error {
    let message = "a file of this name exists, and files are never overwritten; give another name";
    io::Error::new(io::ErrorKind::AlreadyExists, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn files_appear_complete_and_replace_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!(names(folder.path()), ["new.muse-part"]);
        drop(file);
        assert!(names(folder.path()).is_empty(), "a dropped file is removed");

        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"whole").unwrap();
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(names(folder.path()), ["new"]);
        let found = NewFile::create(&path).unwrap_err();
        assert_eq!(found.kind(), io::ErrorKind::AlreadyExists, "{found}");

        let other = folder.path().join("other");
        let late = NewFile::create(&other).unwrap();
        fs::write(&other, "precious").unwrap();
        assert_eq!(late.finish().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&other).unwrap(), b"precious");
        assert_eq!(names(folder.path()), ["new", "other"]);
    }

    #[test]
    fn what_a_killed_process_left_is_found_and_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let (path, part) = (folder.path().join("new"), folder.path().join("new.muse-part"));
        fs::write(&part, "a longer text of an earlier run").unwrap();
        let foreign = folder.path().join("download.part");
        fs::write(&foreign, "of somebody else").unwrap();
        assert_eq!(abandoned_files(folder.path()), [(part.clone(), 31)]);
        let mut file = NewFile::create(&path).unwrap();
        assert!(abandoned_files(folder.path()).is_empty(), "it is being written");
        let error = NewFile::create(&path).unwrap_err();
        assert!(error.to_string().contains("another process is writing it"), "{error}");
        file.write_all(b"short").unwrap();
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"short");
        assert_eq!(names(folder.path()), ["download.part", "new"]);
    }

    #[test]
    fn what_is_wrong_with_a_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let error = NewFile::create(&missing.join("new")).unwrap_err().to_string();
        assert!(error.contains("/missing` does not exist"), "{error}");
        fs::write(&missing, "a file").unwrap();
        let error = NewFile::create(&missing.join("new")).unwrap_err().to_string();
        assert!(error.contains("/missing` is no folder"), "{error}");
        assert!(NewFile::create(&missing.join("..")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_are_not_replaced_and_the_umask_applies() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        symlink("nowhere", &link).unwrap();
        for path in [link.as_path(), Path::new("/dev/null")] {
            let found = NewFile::create(path).unwrap_err();
            assert_eq!(found.kind(), io::ErrorKind::AlreadyExists, "{}", path.display());
        }
        let plain = folder.path().join("plain");
        fs::write(&plain, "kept").unwrap();
        symlink("plain", folder.path().join("ours.muse-part")).unwrap();
        let ours = folder.path().join("ours");
        let found = NewFile::create(&ours).unwrap_err().to_string();
        assert!(found.contains("ours.muse-part` is in the way: it is a symbolic link"), "{found}");
        assert_eq!(fs::read(&plain).unwrap(), b"kept");
        fs::remove_file(folder.path().join("ours.muse-part")).unwrap();
        NewFile::create(&ours).unwrap().finish().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&plain));
    }
}
