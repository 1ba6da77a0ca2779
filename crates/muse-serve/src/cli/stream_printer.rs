//! Shows an answer while it comes: reasoning, then text, with progress before them.

use std::io;

use muse_proto::v1::chat_response::Event;

use super::terminal::{Progress, Screen};

/// Shows an answer while it comes.
pub(super) struct StreamPrinter<'a> {
    screen: &'a mut Screen,
    quiet: bool,
    progress: Progress,
    section: Section,
}

#[derive(Clone, Copy, PartialEq)]
enum Section {
    None,
    Reasoning,
    Text,
}

impl<'a> StreamPrinter<'a> {
    pub(super) fn new(screen: &'a mut Screen, quiet: bool) -> Self {
        Self { screen, quiet, progress: Progress::new(), section: Section::None }
    }

    pub(super) fn push(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Progress(progress) if progress.done < progress.total => {
                self.progress.show("reading", progress.done.into(), progress.total.into());
                return Ok(());
            }
            _ => self.progress.clear(),
        }
        match event {
            _ if self.quiet => Ok(()),
            Event::Reasoning(delta) => {
                self.begin_section(Section::Reasoning)?;
                self.screen.print_dimmed(&delta.text)
            }
            Event::Text(delta) => {
                self.begin_section(Section::Text)?;
                self.screen.print(&delta.text)
            }
            Event::ToolCall(call) => {
                self.begin_section(Section::Text)?;
                self.screen.print(&format!("call {} {}\n", call.name, call.arguments_json))
            }
            Event::Progress(_) | Event::ToolCallDelta(_) | Event::Usage(_) | Event::Finish(_) => {
                Ok(())
            }
        }
    }

    fn begin_section(&mut self, section: Section) -> io::Result<()> {
        let between = match (self.section, section) {
            (from, to) if from == to => return Ok(()),
            // Without colours, a word tells the reasoning from the answer.
            (from, Section::Reasoning) if !self.screen.dims() => match from {
                Section::None => "reasoning: ",
                _ => "\n\nreasoning: ",
            },
            (Section::None, _) => "",
            _ => "\n\n",
        };
        self.section = section;
        self.screen.print(between)
    }

    /// Ends the line that the answer left open.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.progress.clear();
        match self.section {
            Section::None => Ok(()),
            Section::Reasoning | Section::Text => self.screen.print("\n"),
        }
    }
}
