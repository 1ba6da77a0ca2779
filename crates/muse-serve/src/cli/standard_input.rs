//! Standard input read as one text.

use std::io::{self, IsTerminal, Read};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::logging::print_line;

/// What standard input is when it cannot be read as text.
pub(super) const NOT_UTF8: &str = "standard input, which must be UTF-8";

/// The most bytes that are read; no context holds as much text.
const MAX_BYTES: u64 = 16 << 20;

/// How long standard input may be silent before a note says that it is waited for. A pipe that was
/// inherited and that nobody writes to cannot be told from a writer that is slow.
const NOTE_DELAY: Duration = Duration::from_secs(2);

/// All of standard input, without a byte order mark and without the line ends that close it. `what`
/// it is read as stands in the note of a long wait.
pub(super) fn read(what: &str) -> Result<String> {
    let stdin = io::stdin();
    let note = format!(
        "note: waiting for {what} at standard input; `< /dev/null` gives none, Ctrl-C ends"
    );
    let waiting = (!stdin.is_terminal()).then(|| note_after_delay(note));
    let input = NotedInput { stdin, waiting };
    let mut bytes = Vec::new();
    input.take(MAX_BYTES + 1).read_to_end(&mut bytes).context("standard input")?;
    if bytes.len() as u64 > MAX_BYTES {
        bail!("standard input is longer than {} MiB; give a part of it", MAX_BYTES >> 20);
    }
    let text = String::from_utf8(bytes).context(NOT_UTF8)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Prints a note unless the returned sender is dropped before.
fn note_after_delay(note: String) -> Sender<()> {
    let (sender, receiver) = channel();
    let wait = move || {
        if receiver.recv_timeout(NOTE_DELAY) == Err(RecvTimeoutError::Timeout) {
            print_line(&note);
        }
    };
    // Without a thread there is no note.
    let _ = std::thread::Builder::new().spawn(wait);
    sender
}

/// Standard input, with a note that is printed unless something, or the end, is read soon.
struct NotedInput {
    stdin: io::Stdin,
    waiting: Option<Sender<()>>,
}

impl Read for NotedInput {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.stdin.read(bytes);
        self.waiting = None;
        read
    }
}
