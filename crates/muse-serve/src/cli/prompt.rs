//! The line that the user types at a terminal, with its history.

use std::io::{self, IsTerminal};

use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{
    Cmd, ConditionalEventHandler, Config, Editor, Event, EventContext, EventHandler, KeyEvent,
    Movement, RepeatCount,
};

/// Reads lines from a terminal.
#[derive(Default)]
pub(super) struct Prompt {
    history: MemHistory,
}

impl Prompt {
    /// The next line; None at its end: Ctrl-D, or Ctrl-C on an empty line.
    ///
    /// An editor handles SIGINT and SIGWINCH for as long as it exists, and keeps a signal that
    /// arrives between two lines for the next one. Each line therefore has an editor of its own:
    /// while the model answers, SIGINT is `Interrupt`'s alone.
    pub(super) fn read(&mut self) -> Result<Option<String>, ReadlineError> {
        if !io::stdout().is_terminal() {
            // What an editor draws is no part of an output that goes to a file.
            let mut line = String::new();
            let read = io::stdin().read_line(&mut line)?;
            return Ok((read > 0).then_some(line));
        }
        let history = std::mem::take(&mut self.history);
        let mut editor: Editor<(), _> = Editor::with_history(Config::default(), history)?;
        let clear = EventHandler::Conditional(Box::new(ClearLine));
        editor.bind_sequence(KeyEvent::ctrl('C'), clear);
        let line = editor.readline("> ");
        if let Ok(line) = &line {
            editor.add_history_entry(line)?;
        }
        self.history = std::mem::take(editor.history_mut());
        match line {
            Ok(line) => Ok(Some(line)),
            Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Ctrl-C on typed text clears the line; on an empty line it does what it does by default.
struct ClearLine;

impl ConditionalEventHandler for ClearLine {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, line: &EventContext<'_>) -> Option<Cmd> {
        (!line.line().is_empty()).then_some(Cmd::Kill(Movement::WholeBuffer))
    }
}
