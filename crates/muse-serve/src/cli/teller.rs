//! Shows an answer while it comes: reasoning, then text, with progress before them.

use std::io;

use muse_proto::v1::chat_response::Event;

use super::terminal::{Progress, Screen};

/// Shows an answer while it comes.
pub(super) struct Teller<'a> {
    screen: &'a mut Screen,
    quiet: bool,
    progress: Progress,
    voice: Voice,
}

#[derive(Clone, Copy, PartialEq)]
enum Voice {
    Silence,
    Reasoning,
    Text,
}

impl<'a> Teller<'a> {
    pub(super) fn new(screen: &'a mut Screen, quiet: bool) -> Self {
        Self { screen, quiet, progress: Progress::new(), voice: Voice::Silence }
    }

    pub(super) fn tell(&mut self, event: &Event) -> io::Result<()> {
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
                self.turn_to(Voice::Reasoning)?;
                self.screen.mutter(&delta.text)
            }
            Event::Text(delta) => {
                self.turn_to(Voice::Text)?;
                self.screen.say(&delta.text)
            }
            Event::ToolCall(call) => {
                self.turn_to(Voice::Text)?;
                self.screen.say(&format!("call {} {}\n", call.name, call.arguments_json))
            }
            Event::Progress(_) | Event::Usage(_) | Event::Finish(_) => Ok(()),
        }
    }

    fn turn_to(&mut self, voice: Voice) -> io::Result<()> {
        let between = match (self.voice, voice) {
            (from, to) if from == to => return Ok(()),
            // Without colours, a word tells the reasoning from the answer.
            (from, Voice::Reasoning) if !self.screen.dims() => match from {
                Voice::Silence => "reasoning: ",
                _ => "\n\nreasoning: ",
            },
            (Voice::Silence, _) => "",
            _ => "\n\n",
        };
        self.voice = voice;
        self.screen.say(between)
    }

    /// Ends the line that the answer left open.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.progress.clear();
        match self.voice {
            Voice::Silence => Ok(()),
            Voice::Reasoning | Voice::Text => self.screen.say("\n"),
        }
    }
}
