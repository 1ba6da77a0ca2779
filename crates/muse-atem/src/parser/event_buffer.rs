//! The events of an answer: joins the messages of a channel with a newline and applies stop texts.

use std::collections::VecDeque;

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
    ranges: Option<ContentRanges>,
}

/// Where content came from, while it is emitted.
#[derive(Default)]
struct ContentRanges {
    /// Position of the next text of the message.
    at: usize,
    /// Content that stop texts hold back.
    held: VecDeque<ContentRange>,
    emitted: Vec<ContentRange>,
}

/// A part of the visible answer and where it came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct ContentRange {
    /// Position in the text of all tokens.
    pub(super) start: usize,
    /// Bytes of content.
    pub(super) bytes: usize,
    /// The newline that joins two messages: it stands before `start`, in no token.
    pub(super) inserted: bool,
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
    /// With `ranges`, remembers where content comes from until the ranges are taken.
    pub(super) fn new(stop: &[String], ranges: bool) -> Self {
        Self {
            out: Vec::new(),
            capacity: HELD_BYTES,
            stop: StopTexts::new(stop),
            reasoning: MessageSeparator::default(),
            content: MessageSeparator::default(),
            stopped: false,
            ranges: ranges.then(ContentRanges::default),
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

    /// A new message begins at this position in the text of all tokens. Its texts follow without
    /// gaps.
    pub(super) fn start_message(&mut self, position: usize) {
        self.seek(position);
        self.reasoning.newline_due = self.reasoning.has_text;
        self.content.newline_due = self.content.has_text;
    }

    /// The open message has text already.
    pub(super) fn continue_message(&mut self, is_reasoning: bool) {
        let channel = if is_reasoning { &mut self.reasoning } else { &mut self.content };
        channel.has_text = true;
    }

    /// Forgets the events so far.
    pub(super) fn discard(&mut self) {
        self.out.clear();
    }

    pub(super) fn reasoning(&mut self, text: &str) {
        if text.is_empty() || self.stopped {
            return;
        }
        if self.reasoning.take_newline() {
            push_reasoning(&mut self.out, "\n", self.capacity);
        }
        push_reasoning(&mut self.out, text, self.capacity);
        if let Some(ranges) = &mut self.ranges {
            ranges.at += text.len();
        }
    }

    /// The next text of the message comes from this position: what lies before it is no text.
    pub(super) fn seek(&mut self, position: usize) {
        if let Some(ranges) = &mut self.ranges {
            ranges.at = position;
        }
    }

    /// Position of the next text of the message.
    pub(super) fn position(&self) -> usize {
        self.ranges.as_ref().map_or(0, |ranges| ranges.at)
    }

    /// Position of the first content that stop texts hold back.
    pub(super) fn held_from(&self) -> Option<usize> {
        self.ranges.as_ref()?.held.front().map(|held| held.start)
    }

    /// The ranges of the content emitted since the last call.
    pub(super) fn take_ranges(&mut self) -> impl Iterator<Item = ContentRange> + '_ {
        self.ranges.iter_mut().flat_map(|ranges| ranges.emitted.drain(..))
    }

    pub(super) fn content(&mut self, text: &str) {
        if text.is_empty() || self.stopped {
            return;
        }
        if self.content.take_newline() {
            self.emit_content("\n", true);
        }
        self.emit_content(text, false);
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
            if let Some(ranges) = &mut self.ranges {
                ranges.emit(rest.len());
            }
        }
    }

    /// Moves the events to `out`.
    pub(super) fn drain(&mut self, out: &mut Vec<ParsedEvent>) {
        out.append(&mut self.out);
    }

    fn emit_content(&mut self, text: &str, inserted: bool) {
        if self.stopped {
            return;
        }
        let Self { out, stop, capacity, ranges, .. } = self;
        if let Some(ranges) = ranges {
            ranges.hold(text.len(), inserted);
        }
        let emit = |text: &str| {
            push_content(out, text, *capacity);
            if let Some(ranges) = ranges {
                ranges.emit(text.len());
            }
        };
        if let Some(found) = stop.push(text, emit) {
            self.out.push(ParsedEvent::StopText(found));
            self.stopped = true;
            if let Some(ranges) = &mut self.ranges {
                ranges.held.clear();
            }
        }
    }
}

impl ContentRanges {
    fn hold(&mut self, bytes: usize, inserted: bool) {
        let range = ContentRange { start: self.at, bytes, inserted };
        match self.held.back_mut() {
            Some(last) if last.continues_with(&range) => last.bytes += bytes,
            _ => self.held.push_back(range),
        }
        if !inserted {
            self.at += bytes;
        }
    }

    /// The next `bytes` of what is held were emitted.
    fn emit(&mut self, bytes: usize) {
        let mut left = bytes;
        while let Some(range) = self.held.front_mut().filter(|_| left > 0) {
            let part = ContentRange { bytes: left.min(range.bytes), ..*range };
            range.bytes -= part.bytes;
            range.start += if part.inserted { 0 } else { part.bytes };
            left -= part.bytes;
            if range.bytes == 0 {
                self.held.pop_front();
            }
            match self.emitted.last_mut() {
                Some(last) if last.continues_with(&part) => last.bytes += part.bytes,
                _ => self.emitted.push(part),
            }
        }
    }
}

impl ContentRange {
    fn continues_with(&self, next: &Self) -> bool {
        !self.inserted && !next.inserted && self.start + self.bytes == next.start
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
