//! The bytes of a file: mapped from disk, part of the program, or in memory. Mapping files, and
//! reporting a mapped file that can no longer be read, is the only unsafe code of the crate.

#![allow(unsafe_code)]

use std::fs::{File, Metadata};
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::open::open_regular_file;

/// The bytes of a file: mapped, static or owned.
#[derive(Debug)]
pub struct Bytes(Storage);

#[derive(Debug)]
enum Storage {
    Mapped(Mapped),
    Static(&'static [u8]),
    Owned(Vec<u8>),
}

/// A mapped file as it was when it was mapped.
#[derive(Debug)]
struct Mapped {
    // Dropped first: from then on the addresses of the map may be another's.
    #[cfg(unix)]
    _region: fault::Registered,
    map: memmap2::Mmap,
    file: File,
    modified: Option<SystemTime>,
}

impl Bytes {
    /// Maps a regular file: pages are read when touched and shared with every process that maps it.
    ///
    /// The file must not change while it is mapped. If it is shortened, or its disk fails, reading
    /// the part that is gone ends the process with a message on standard error that names the file:
    /// the first call installs a handler of SIGBUS for that, which leaves any other SIGBUS to the
    /// handler before it.
    ///
    /// # Errors
    /// [`Error::Read`] when the system refuses, or the path is not a regular file.
    pub fn map(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        Self::map_named(path, &name).map_err(|source| Error::read(&name, source))
    }

    fn map_named(path: &Path, name: &str) -> io::Result<Self> {
        let file = open_regular_file(path)?;
        let metadata = file.metadata()?;
        let length = usize::try_from(metadata.len()).map_err(io::Error::other)?;
        // SAFETY: the mapping is private and read-only, so this process cannot write through it.
        // The file is regular and, as documented, must not change while it is mapped. Every value
        // read from the bytes is checked, so changed bytes could give wrong numbers but no invalid
        // memory access, and `change` finds them.
        let map = unsafe { memmap2::MmapOptions::new().len(length).map_copy_read_only(&file) }?;
        Ok(Self(Storage::Mapped(Mapped {
            #[cfg(unix)]
            _region: fault::register(&map, name),
            map,
            modified: metadata.modified().ok(),
            file,
        })))
    }

    /// The modification time of a mapped file, where the system has one.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        match &self.0 {
            Storage::Mapped(mapped) => mapped.modified,
            Storage::Static(_) | Storage::Owned(_) => None,
        }
    }

    /// What changed of a mapped file since it was mapped: its size or its modification time. The
    /// last page of a file that was shortened a little reads as zeros, without a signal.
    pub(crate) fn change(&self) -> Option<String> {
        let Storage::Mapped(Mapped { map, file, modified, .. }) = &self.0 else { return None };
        let (length, time) = match file.metadata() {
            Ok(metadata) => (Metadata::len(&metadata), metadata.modified().ok()),
            Err(error) => return Some(error.to_string()),
        };
        if length != map.len() as u64 {
            return Some(format!("{length} bytes where there were {}", map.len()));
        }
        (time != *modified).then(|| "that it was written to".to_owned())
    }

    /// Returns the memory of a range of a mapped file to the system; pages are read again when
    /// touched.
    pub(crate) fn release(&self, range: Range<usize>) {
        match &self.0 {
            #[cfg(unix)]
            Storage::Mapped(Mapped { map, .. }) => {
                let advice = memmap2::UncheckedAdvice::DontNeed;
                // SAFETY: nothing is ever written to this private, read-only mapping of a file: a
                // dropped page has the same bytes when it is touched again, so references into
                // the range stay valid.
                let advised =
                    unsafe { map.unchecked_advise_range(advice, range.start, range.len()) };
                // Advice only: if the system refuses, the pages stay in memory.
                drop(advised);
            }
            _ => {}
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Storage::Mapped(mapped) => &mapped.map,
            Storage::Static(bytes) => bytes,
            Storage::Owned(bytes) => bytes,
        }
    }
}

impl From<&'static [u8]> for Bytes {
    fn from(bytes: &'static [u8]) -> Self {
        Self(Storage::Static(bytes))
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Storage::Owned(bytes))
    }
}

/// Says which file it was when a page of a mapped file cannot be read, and ends the process.
#[cfg(unix)]
mod fault {
    use std::ffi::{c_int, c_void};
    use std::mem::MaybeUninit;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Mutex, Once, OnceLock};

    /// Mapped memory and the file it is of, in a list that a signal handler can walk: entries are
    /// never freed, only marked as free, and taken again for the next map of the same file.
    struct Region {
        /// 0 when the entry is free.
        start: AtomicUsize,
        length: AtomicUsize,
        name: String,
        next: OnceLock<&'static Region>,
    }

    static FIRST: OnceLock<&'static Region> = OnceLock::new();
    /// Held by whoever changes the list.
    static CHANGING: Mutex<()> = Mutex::new(());
    /// What SIGBUS did before.
    static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

    fn regions() -> impl Iterator<Item = &'static Region> {
        std::iter::successors(FIRST.get().copied(), |region| region.next.get().copied())
    }

    /// A region in the list for as long as this lives.
    #[derive(Debug)]
    pub(super) struct Registered(&'static AtomicUsize);

    impl Drop for Registered {
        fn drop(&mut self) {
            self.0.store(0, Ordering::Release);
        }
    }

    /// Enters mapped memory of the file `name` into the list.
    pub(super) fn register(memory: &[u8], name: &str) -> Registered {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        // What moves the cursor of a terminal stays out of messages.
        let name = name.replace(char::is_control, "?");
        let guard = CHANGING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let free =
            |region: &&Region| region.start.load(Ordering::Acquire) == 0 && region.name == name;
        let region = regions().find(free).unwrap_or_else(|| append(&name));
        region.length.store(memory.len(), Ordering::Relaxed);
        region.start.store(memory.as_ptr().addr(), Ordering::Release);
        drop(guard);
        Registered(&region.start)
    }

    fn append(name: &str) -> &'static Region {
        let region = Box::leak(Box::new(Region {
            start: AtomicUsize::new(0),
            length: AtomicUsize::new(0),
            name: name.to_owned(),
            next: OnceLock::new(),
        }));
        let end = regions().last().map_or(&FIRST, |last| &last.next);
        assert!(end.set(region).is_ok(), "the list has one end, and it is locked");
        region
    }

    fn install() {
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
        // SAFETY: a `sigaction` is plain data for which all zeros is a value.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        let mut previous = MaybeUninit::uninit();
        // SAFETY: both pointers are of live values, and the handler has the signature that
        // `SA_SIGINFO` demands and calls nothing that is not async-signal-safe.
        let failed =
            unsafe { libc::sigaction(libc::SIGBUS, &raw const action, previous.as_mut_ptr()) };
        if failed == 0 {
            // SAFETY: the call that succeeded filled it in.
            let previous = unsafe { previous.assume_init() };
            // A signal that comes before this line finds none, which means the default.
            PREVIOUS.get_or_init(|| previous);
        }
    }

    extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
        // SAFETY: the system hands a handler with `SA_SIGINFO` a valid pointer.
        let info = unsafe { &*info };
        // Others than the kernel can send the signal, too; there is no address then.
        let by_kernel = info.si_code > 0;
        if by_kernel {
            // SAFETY: a SIGBUS of the kernel has an address.
            let address = unsafe { info.si_addr() }.addr();
            let inside = |region: &&Region| {
                let start = region.start.load(Ordering::Acquire);
                start != 0 && address.wrapping_sub(start) < region.length.load(Ordering::Relaxed)
            };
            if let Some(region) = regions().find(inside) {
                report(&region.name, address - region.start.load(Ordering::Relaxed));
            }
        }
        // Not of a mapped file: what was there before decides, when the instruction or the signal
        // comes again.
        let previous = PREVIOUS.get().map_or(std::ptr::null(), |action| &raw const *action);
        if previous.is_null() {
            // SAFETY: resetting a signal to its default is sound at any time.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        } else {
            // SAFETY: the pointer is of an action that the system filled in.
            unsafe { libc::sigaction(signal, previous, std::ptr::null_mut()) };
        }
        if !by_kernel {
            // SAFETY: `raise` is async-signal-safe; the signal comes after this handler returns.
            unsafe { libc::raise(signal) };
        }
    }

    /// Ends the process with a message, without allocating and without locks.
    fn report(name: &str, offset: usize) -> ! {
        static REPORTED: AtomicBool = AtomicBool::new(false);
        if REPORTED.swap(true, Ordering::Relaxed) {
            // Another thread is writing the message and ends the process.
            loop {
                // SAFETY: `pause` has no preconditions.
                unsafe { libc::pause() };
            }
        }
        let mut message = Message { bytes: [0; 1024], length: 0 };
        message.push(b"error: ");
        message.push(&name.as_bytes()[..name.len().min(700)]);
        message.push(b": cannot be read any more at byte ");
        message.push_number(offset);
        message.push(
            b": it was shortened while it was in use, or its disk failed; restore it and start \
              again\n",
        );
        let bytes = &message.bytes[..message.length];
        // SAFETY: pointer and length are of `bytes`. Nothing can be done about a failure.
        unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
        // SAFETY: ending the process at once is what is meant.
        unsafe { libc::_exit(1) }
    }

    /// A message of limited length.
    struct Message {
        bytes: [u8; 1024],
        length: usize,
    }

    impl Message {
        fn push(&mut self, bytes: &[u8]) {
            for &byte in bytes {
                if let Some(place) = self.bytes.get_mut(self.length) {
                    *place = byte;
                    self.length += 1;
                }
            }
        }

        fn push_number(&mut self, number: usize) {
            let (mut digits, mut count, mut rest) = ([0; 20], 0, number);
            loop {
                digits[count] = b'0' + (rest % 10) as u8;
                (count, rest) = (count + 1, rest / 10);
                if rest == 0 {
                    break;
                }
            }
            digits[..count].reverse();
            self.push(&digits[..count]);
        }
    }
}
