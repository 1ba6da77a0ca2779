//! What the terminal shows beside the answer: dimmed text, progress, and nothing harmful.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::config;

/// How long a work may take before its progress is worth a line.
const PROGRESS_DELAY: Duration = Duration::from_millis(300);

/// Standard output, dimmed where asked and able.
pub(super) struct Screen {
    out: io::Stdout,
    colours: bool,
    terminal: bool,
}

impl Screen {
    pub(super) fn new() -> Self {
        let out = io::stdout();
        Self { colours: config::colours(&out), terminal: out.is_terminal(), out }
    }

    /// Whether dimmed text can be told from other text.
    pub(super) fn dims(&self) -> bool {
        self.colours
    }

    /// Writes at once: a stream of words should be seen as they come.
    pub(super) fn print(&mut self, text: &str) -> io::Result<()> {
        self.write(text, "", "")
    }

    /// The same, dimmed.
    pub(super) fn print_dimmed(&mut self, text: &str) -> io::Result<()> {
        match self.colours {
            true => self.write(text, "\x1b[2m", "\x1b[22m"),
            false => self.write(text, "", ""),
        }
    }

    fn write(&mut self, text: &str, before: &str, after: &str) -> io::Result<()> {
        let text = if self.terminal { sanitize(text) } else { Cow::Borrowed(text) };
        let mut out = self.out.lock();
        write!(out, "{before}{text}{after}").and_then(|()| out.flush()).map_err(|error| {
            // The kind stays: a reader who left is no fault.
            io::Error::new(error.kind(), format!("standard output: {error}"))
        })
    }
}

/// `text` without the control characters that could move the cursor or recolour the terminal:
/// a model may be talked into writing them.
pub(super) fn sanitize(text: &str) -> Cow<'_, str> {
    let unsafe_char = |c: char| c.is_control() && c != '\n' && c != '\t';
    match text.contains(unsafe_char) {
        true => text.replace(unsafe_char, "\u{fffd}").into(),
        false => text.into(),
    }
}

/// A line on standard error that says how far a long work is; silent for short works, and unless
/// that is a terminal.
pub(super) struct Progress {
    shown: Option<String>,
    since: Instant,
    enabled: bool,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { shown: None, since: Instant::now(), enabled: io::stderr().is_terminal() }
    }

    /// Shows `done` of `total`.
    pub(super) fn show(&mut self, what: &str, done: u64, total: u64) {
        self.show_line(format!("{what}: {} %", (done * 100).checked_div(total).unwrap_or(100)));
    }

    /// Shows a line of one's own.
    pub(super) fn show_line(&mut self, line: String) {
        let slow = self.since.elapsed() >= PROGRESS_DELAY;
        if self.enabled && slow && self.shown.as_ref() != Some(&line) {
            draw(&line);
            self.shown = Some(line);
        }
    }

    /// Takes the line away.
    pub(super) fn clear(&mut self) {
        if self.shown.take().is_some() {
            draw("");
        }
    }
}

/// Replaces the line. A terminal that is gone changes nothing.
fn draw(line: &str) {
    let _ = write!(io::stderr(), "\r\x1b[K{line}");
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::sanitize;

    #[test]
    fn escapes_lose_their_power_and_text_stays() {
        assert_eq!(sanitize("a\x1b[2Jb\r\u{9b}1m"), "a\u{fffd}[2Jb\u{fffd}\u{fffd}1m");
        assert_eq!(sanitize("gros café\n\t- ½"), "gros café\n\t- ½");
    }
}
