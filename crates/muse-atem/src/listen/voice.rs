//! What has been heard so far: joins messages of a channel and stops at stop texts.

use muse_core::contract::{Heard, ToolCall};

use super::stop::StopTexts;

/// Collects what is heard.
pub(super) struct Voice {
    out: Vec<Heard>,
    stop: StopTexts,
    think: Joint,
    say: Joint,
    stopped: bool,
}

/// Where a newline between two messages of a channel is due.
#[derive(Clone, Copy, Default)]
struct Joint {
    spoke: bool,
    due: bool,
}

impl Voice {
    pub(super) fn new(stop: &[String]) -> Self {
        Self {
            out: Vec::new(),
            stop: StopTexts::new(stop),
            think: Joint::default(),
            say: Joint::default(),
            stopped: false,
        }
    }

    /// Whether nothing more is to be heard: a stop text was met, or the answer is finished.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// A message begins.
    pub(super) fn message(&mut self) {
        self.think.due = self.think.spoke;
        self.say.due = self.say.spoke;
    }

    pub(super) fn think(&mut self, text: &str) {
        if text.is_empty() || self.stopped {
            return;
        }
        if self.think.join() {
            push_think(&mut self.out, "\n");
        }
        push_think(&mut self.out, text);
    }

    pub(super) fn say(&mut self, text: &str) {
        if text.is_empty() || self.stopped {
            return;
        }
        if self.say.join() {
            self.show("\n");
        }
        self.show(text);
    }

    pub(super) fn call(&mut self, call: ToolCall) {
        if !self.stopped {
            self.out.push(Heard::Call(call));
        }
    }

    /// More of a call that is being written.
    pub(super) fn call_part(&mut self, id: &str, name: &str, arguments: &str) {
        match self.out.last_mut() {
            _ if self.stopped => {}
            Some(Heard::CallPart(last)) if last.id == id => last.arguments.push_str(arguments),
            _ => self.out.push(Heard::CallPart(ToolCall {
                id: id.to_owned(),
                name: name.to_owned(),
                arguments: arguments.to_owned(),
            })),
        }
    }

    /// Nothing more is to be heard.
    pub(super) fn finish(&mut self) {
        if !std::mem::replace(&mut self.stopped, true) {
            let rest = self.stop.rest();
            push_say(&mut self.out, &rest);
        }
    }

    /// Moves what was heard to `out`.
    pub(super) fn drain(&mut self, out: &mut Vec<Heard>) {
        out.append(&mut self.out);
    }

    fn show(&mut self, text: &str) {
        if self.stopped {
            return;
        }
        let Self { out, stop, .. } = self;
        if let Some(met) = stop.take(text, |text| push_say(out, text)) {
            self.out.push(Heard::StopText(met));
            self.stopped = true;
        }
    }
}

impl Joint {
    fn join(&mut self) -> bool {
        self.spoke = true;
        std::mem::take(&mut self.due)
    }
}

fn push_think(out: &mut Vec<Heard>, text: &str) {
    match out.last_mut() {
        Some(Heard::Think(last)) => last.push_str(text),
        _ => out.push(Heard::Think(text.to_owned())),
    }
}

fn push_say(out: &mut Vec<Heard>, text: &str) {
    match out.last_mut() {
        _ if text.is_empty() => {}
        Some(Heard::Say(last)) => last.push_str(text),
        _ => out.push(Heard::Say(text.to_owned())),
    }
}
