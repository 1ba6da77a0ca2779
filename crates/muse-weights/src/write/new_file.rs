//! A file that appears under its name only when it is complete.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// A file under a temporary name in the same folder. It is renamed once its bytes are on the disk,
/// never over another file, and removed when it is dropped before.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    file: NamedTempFile,
}

impl NewFile {
    /// Creates a file that will be renamed to `path`.
    ///
    /// # Errors
    /// When the name is in use, or the system refuses.
    pub fn create(path: &Path) -> io::Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(name_in_use());
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let Some(name) = path.file_name() else {
            let message = "the path has no file name at its end";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        };
        let mut file = tempfile::Builder::new();
        // The umask applies, as for any other new file.
        #[cfg(unix)]
        file.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let prefix = format!("{}.", name.to_string_lossy());
        let file = file.prefix(&prefix).suffix(".part").tempfile_in(folder).map_err(|error| {
            // Without the temporary path, which the error of `tempfile` names.
            io::Error::from(error.kind())
        })?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Renames the file.
    ///
    /// # Errors
    /// When the name is in use by now, or the system refuses.
    pub fn finish(self) -> io::Result<()> {
        self.file.as_file().sync_all()?;
        let named = self.file.persist_noclobber(&self.path);
        named.map(drop).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => name_in_use(),
            _ => error.error,
        })
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn name_in_use() -> io::Error {
    let message = "a file of this name exists, and files are never overwritten; give another name";
    io::Error::new(io::ErrorKind::AlreadyExists, message)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_appear_complete_and_replace_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert!(!path.exists());
        drop(file);
        assert_eq!(names(), 0, "a dropped file is removed");

        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"whole").unwrap();
        file.finish().unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), names()), (&b"whole"[..], 1));
        let found = NewFile::create(&path).unwrap_err();
        assert_eq!(found.kind(), io::ErrorKind::AlreadyExists, "{found}");

        let other = folder.path().join("other");
        let late = NewFile::create(&other).unwrap();
        fs::write(&other, "precious").unwrap();
        assert_eq!(late.finish().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&other).unwrap(), b"precious");
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_are_not_replaced_and_the_umask_applies() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        for path in [link.as_path(), Path::new("/dev/null")] {
            let found = NewFile::create(path).unwrap_err();
            assert_eq!(found.kind(), io::ErrorKind::AlreadyExists, "{}", path.display());
        }
        let plain = folder.path().join("plain");
        fs::write(&plain, "").unwrap();
        let ours = folder.path().join("ours");
        NewFile::create(&ours).unwrap().finish().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&plain));
    }
}
