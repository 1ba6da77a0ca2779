//! Opens files that people name: regular files only, and never by waiting.

use std::fs::{self, File, FileType, Metadata};
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file for reading. Opening anything else can wait for ever (a FIFO without a
/// writer) or have effects of its own (a device), so that is refused.
///
/// # Errors
/// The system's error, whose message does not name the path; [`io::ErrorKind::InvalidInput`] for a
/// folder, FIFO, socket or device; [`io::ErrorKind::NotFound`] with the link's target for a symbolic
/// link that leads nowhere.
pub fn open_regular_file(path: &Path) -> io::Result<File> {
    // Before opening, since opening a device can have effects.
    check(&metadata(path)?)?;
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        libc::O_NONBLOCK | libc::O_NOCTTY,
    );
    let file = options.open(path)?;
    // The name may stand for another file by now.
    check(&file.metadata()?)?;
    Ok(file)
}

/// Reads a regular file of UTF-8 text, without the byte order mark some editors write.
///
/// # Errors
/// As [`open_regular_file`]; [`io::ErrorKind::InvalidData`] for text in another encoding;
/// [`io::ErrorKind::FileTooLarge`] for a file of more than `max_bytes`.
pub fn read_text_file(path: &Path, max_bytes: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    open_regular_file(path)?.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        let message =
            format!("it has more than {max_bytes} bytes, too many for a file of its kind");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    let invalid = |message: String| io::Error::new(io::ErrorKind::InvalidData, message);
    let text = without_byte_order_mark(&bytes).map_err(|found| invalid(not_utf8(found)))?;
    let text = std::str::from_utf8(text).map_err(|error| invalid(not_utf8(&error.to_string())))?;
    Ok(text.to_owned())
}

fn not_utf8(found: &str) -> String {
    format!("found {found}, expected text in UTF-8: save it in that encoding")
}

/// The text behind a UTF-8 byte order mark, if there is one. The error names the encoding when the
/// mark is one of UTF-16.
pub(crate) fn without_byte_order_mark(bytes: &[u8]) -> Result<&[u8], &'static str> {
    match bytes {
        [0xef, 0xbb, 0xbf, text @ ..] => Ok(text),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Err("text in UTF-16"),
        text => Ok(text),
    }
}

/// Whether a name is in use, if only by a symbolic link that leads nowhere.
///
/// # Errors
/// The system's, as when the folder may not be searched.
pub(crate) fn exists(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// [`fs::metadata`] with an error that says which symbolic link leads nowhere.
pub(crate) fn metadata(path: &Path) -> io::Result<Metadata> {
    fs::metadata(path).map_err(|error| name_dangling_link(path, error))
}

/// Refuses what is no regular file.
pub(crate) fn check(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let message = format!("it is {}, expected a regular file", kind(metadata.file_type()));
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

fn kind(file_type: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if file_type.is_fifo() {
            return "a FIFO (named pipe)";
        }
        if file_type.is_socket() {
            return "a socket";
        }
        if file_type.is_char_device() || file_type.is_block_device() {
            return "a device";
        }
    }
    match () {
        () if file_type.is_dir() => "a folder",
        () if file_type.is_symlink() => "a symbolic link",
        () => "no file",
    }
}

fn name_dangling_link(path: &Path, error: io::Error) -> io::Error {
    match fs::read_link(path) {
        Ok(target) if error.kind() == io::ErrorKind::NotFound => {
            let target = crate::error::escaped(&target.display().to_string());
            let message = format!("it is a symbolic link to `{target}`, where there is no file");
            io::Error::new(io::ErrorKind::NotFound, message)
        }
        _ => error,
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn text_files_are_bounded_and_lose_their_byte_order_mark() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        let read = |bytes: &[u8], max_bytes| {
            fs::write(&path, bytes).unwrap();
            read_text_file(&path, max_bytes).map_err(|error| error.to_string())
        };
        assert_eq!(read(b"abc", 3).as_deref(), Ok("abc"));
        assert_eq!(read(b"\xef\xbb\xbfabc", 6).as_deref(), Ok("abc"));
        assert!(read(b"abcd", 3).unwrap_err().contains("more than 3 bytes"));
        assert!(read(b"\xff\xfea\0", 9).unwrap_err().contains("UTF-16"));
        assert!(read(b"ab\xff", 9).unwrap_err().contains("UTF-8"));
    }

    #[test]
    fn links_are_followed_unless_they_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        symlink(&file, &link).unwrap();
        let error = open_regular_file(&link).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("/file`, where there is no file"), "{error}");
        assert!(exists(&link).unwrap() && !exists(&file).unwrap());
        fs::write(&file, "x").unwrap();
        assert_eq!(read_text_file(&link, 1).unwrap(), "x");
        let error = open_regular_file(folder.path()).unwrap_err();
        assert!(error.to_string().contains("a folder"), "{error}");
    }
}
