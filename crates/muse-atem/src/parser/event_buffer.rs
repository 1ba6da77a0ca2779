//! The events of an answer: joins the messages of a channel with a newline and applies stop texts.

use muse_core::contract::{ParsedEvent, ToolCall};

use super::stop_texts::StopTexts;

/// Collects the events of an answer until they are drained.
pub(super) struct EventBuffer {
    out: Vec<ParsedEvent>,
    /// Capacity given to new texts, in bytes, so that appending to them does not reallocate.
    capacity: usize,
    stop: StopTexts,
    reasoning: MessageSeparator,
    content: MessageSeparator,
    stopped: bool,
}

/// Upper bound of the bytes usually held back from earlier input: a name or a special token.
const HELD_BYTES: usize = 32;

/// Whether a newline is due before more text of a channel.
#[derive(Clone, Copy, Default)]
struct MessageSeparator {
    has_text: bool,
    newline_due: bool,
}

impl EventBuffer {
    pub(super) fn new(stop: &[String]) -> Self {
        Self {
            out: Vec::new(),
            capacity: HELD_BYTES,
            stop: StopTexts::new(stop),
            reasoning: MessageSeparator::default(),
            content: MessageSeparator::default(),
            stopped: false,
        }
    }

    /// Announces `bytes` of text before the next drain: new texts get capacity for them and for
    /// what was held back.
    pub(super) fn reserve(&mut self, bytes: usize) {
        self.capacity = bytes + HELD_BYTES;
    }

    /// Whether the answer is over: a stop text was found, or [`EventBuffer::finish`] was called.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// A new message begins.
    pub(super) fn start_message(&mut self) {
        self.reasoning.newline_due = self.reasoning.has_text;
        self.content.newline_due = self.content.has_text;
    }

    pub(super) fn reasoning(&mut self, text: &str) {
        if text.is_empty() || self.stopped {
            return;
        }
        if self.reasoning.take_newline() {
            push_reasoning(&mut self.out, "\n", self.capacity);
        }
        push_reasoning(&mut self.out, text, self.capacity);
    }

    pub(super) fn content(&mut self, text: &str) {
        if text.is_empty() || self.stopped {
            return;
        }
        if self.content.take_newline() {
            self.emit_content("\n");
        }
        self.emit_content(text);
    }

    pub(super) fn call(&mut self, call: ToolCall) {
        if !self.stopped {
            self.out.push(ParsedEvent::ToolCall(call));
        }
    }

    /// More arguments of a call that is being generated.
    pub(super) fn call_delta(&mut self, id: &str, name: &str, arguments: &str) {
        match self.out.last_mut() {
            _ if self.stopped => {}
            Some(ParsedEvent::ToolCallDelta(last)) if last.id == id => {
                last.arguments.push_str(arguments)
            }
            _ => self.out.push(ParsedEvent::ToolCallDelta(ToolCall {
                id: id.to_owned(),
                name: name.to_owned(),
                arguments: with_capacity(arguments, self.capacity),
            })),
        }
    }

    /// The answer ended; emits what the stop texts held back.
    pub(super) fn finish(&mut self) {
        if !std::mem::replace(&mut self.stopped, true) {
            let rest = self.stop.rest();
            push_content(&mut self.out, &rest, self.capacity);
        }
    }

    /// Moves the events to `out`.
    pub(super) fn drain(&mut self, out: &mut Vec<ParsedEvent>) {
        out.append(&mut self.out);
    }

    fn emit_content(&mut self, text: &str) {
        if self.stopped {
            return;
        }
        let Self { out, stop, capacity, .. } = self;
        if let Some(found) = stop.push(text, |text| push_content(out, text, *capacity)) {
            self.out.push(ParsedEvent::StopText(found));
            self.stopped = true;
        }
    }
}

impl MessageSeparator {
    fn take_newline(&mut self) -> bool {
        self.has_text = true;
        std::mem::take(&mut self.newline_due)
    }
}

fn push_reasoning(out: &mut Vec<ParsedEvent>, text: &str, capacity: usize) {
    match out.last_mut() {
        Some(ParsedEvent::Reasoning(last)) => last.push_str(text),
        _ => out.push(ParsedEvent::Reasoning(with_capacity(text, capacity))),
    }
}

fn push_content(out: &mut Vec<ParsedEvent>, text: &str, capacity: usize) {
    match out.last_mut() {
        _ if text.is_empty() => {}
        Some(ParsedEvent::Content(last)) => last.push_str(text),
        _ => out.push(ParsedEvent::Content(with_capacity(text, capacity))),
    }
}

fn with_capacity(text: &str, capacity: usize) -> String {
    let mut string = String::with_capacity(text.len().max(capacity));
    string.push_str(text);
    string
}
