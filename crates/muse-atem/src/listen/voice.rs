//! What has been heard so far: joins messages of a channel and stops at stop texts.

use muse_core::contract::{ParsedEvent, ToolCall};

use super::stop::StopTexts;

/// Collects what is heard.
pub(super) struct Voice {
    out: Vec<ParsedEvent>,
    /// Bytes that a text may come to have before it is taken away.
    room: usize,
    stop: StopTexts,
    think: Joint,
    say: Joint,
    stopped: bool,
}

/// Bytes that are held back now and then: a name, a mark.
const HELD: usize = 32;

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
            room: HELD,
            stop: StopTexts::new(stop),
            think: Joint::default(),
            say: Joint::default(),
            stopped: false,
        }
    }

    /// So many bytes come now: texts are made with room for them and for what was held before, so
    /// that they need not grow.
    pub(super) fn expect(&mut self, bytes: usize) {
        self.room = bytes + HELD;
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
            push_think(&mut self.out, "\n", self.room);
        }
        push_think(&mut self.out, text, self.room);
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
            self.out.push(ParsedEvent::ToolCall(call));
        }
    }

    /// More of a call that is being written.
    pub(super) fn call_part(&mut self, id: &str, name: &str, arguments: &str) {
        match self.out.last_mut() {
            _ if self.stopped => {}
            Some(ParsedEvent::ToolCallDelta(last)) if last.id == id => {
                last.arguments.push_str(arguments)
            }
            _ => self.out.push(ParsedEvent::ToolCallDelta(ToolCall {
                id: id.to_owned(),
                name: name.to_owned(),
                arguments: roomy(arguments, self.room),
            })),
        }
    }

    /// Nothing more is to be heard.
    pub(super) fn finish(&mut self) {
        if !std::mem::replace(&mut self.stopped, true) {
            let rest = self.stop.rest();
            push_say(&mut self.out, &rest, self.room);
        }
    }

    /// Moves what was heard to `out`.
    pub(super) fn drain(&mut self, out: &mut Vec<ParsedEvent>) {
        out.append(&mut self.out);
    }

    fn show(&mut self, text: &str) {
        if self.stopped {
            return;
        }
        let Self { out, stop, room, .. } = self;
        if let Some(met) = stop.take(text, |text| push_say(out, text, *room)) {
            self.out.push(ParsedEvent::StopText(met));
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

fn push_think(out: &mut Vec<ParsedEvent>, text: &str, room: usize) {
    match out.last_mut() {
        Some(ParsedEvent::Reasoning(last)) => last.push_str(text),
        _ => out.push(ParsedEvent::Reasoning(roomy(text, room))),
    }
}

fn push_say(out: &mut Vec<ParsedEvent>, text: &str, room: usize) {
    match out.last_mut() {
        _ if text.is_empty() => {}
        Some(ParsedEvent::Content(last)) => last.push_str(text),
        _ => out.push(ParsedEvent::Content(roomy(text, room))),
    }
}

fn roomy(text: &str, room: usize) -> String {
    let mut roomy = String::with_capacity(text.len().max(room));
    roomy.push_str(text);
    roomy
}
