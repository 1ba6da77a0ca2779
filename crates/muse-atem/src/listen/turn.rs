//! One answer of the assistant: which message is open, and what its text means. Takes text and
//! marks; knows nothing of tokens and bytes.

use muse_core::contract::{Channel, Conversation, ParsedEvent, PromptPart, ToolCall};

use super::block::{Addressee, Block, Invoke};
use super::growth::Growth;
use super::header::{Header, Speaker};
use super::names::Declared;
use super::schema;
use super::speech::{Hold, Step, Switches};
use super::voice::Voice;
use crate::json::Json;
use crate::mark::Mark;

/// An answer while it comes in.
pub(super) struct Turn {
    declared: Declared,
    /// Marks are tokens; the same letters are text.
    by_token: bool,
    single_call: bool,
    growing_calls: bool,
    state: State,
    voice: Voice,
}

enum State {
    /// A header is due.
    Header(Header),
    /// Reasoning, or an answer.
    Speech { thought: bool, hold: Hold },
    /// A message to a tool, or one without recipient that may turn out to be a call.
    Body { recipient: Option<String>, block: Box<Block>, pending: Option<Pending>, growth: Growth },
    /// The turn is over; the rest is ignored.
    Over,
}

/// A mark within a message to a tool, until what follows says whether it is structure.
struct Pending {
    /// The mark; none when the header below came by itself.
    end: Option<Mark>,
    header: Option<Header>,
}

impl Turn {
    /// `by_token` when marks come as tokens of their own.
    pub(super) fn new(conversation: &Conversation, stop: &[String], by_token: bool) -> Self {
        let declared = Declared::new(&conversation.tools);
        let state = State::Header(Header::due(declared.longest()));
        let mut turn = Self {
            declared,
            by_token,
            single_call: conversation.single_call,
            growing_calls: conversation.growing_calls,
            state,
            voice: Voice::new(stop),
        };
        for piece in &conversation.answer_prefix {
            match piece {
                PromptPart::Text(text) => turn.text(text),
                PromptPart::Special(spelled) => {
                    if let Some(mark) = Mark::ALL.into_iter().find(|mark| mark.text() == *spelled) {
                        turn.mark(mark);
                    }
                }
                PromptPart::Image(_) | PromptPart::Video(_) => {}
            }
        }
        turn
    }

    /// Moves what was heard to `out`.
    pub(super) fn drain(&mut self, out: &mut Vec<ParsedEvent>) {
        self.voice.drain(out);
    }

    /// So many bytes of text come before what was heard is taken away.
    pub(super) fn expect(&mut self, bytes: usize) {
        self.voice.expect(bytes);
    }

    /// Where text that came now would belong.
    pub(super) fn channel(&self) -> Channel {
        match &self.state {
            State::Header(_) | State::Over => Channel::Protocol,
            State::Speech { hold, .. } if hold.is_header() => Channel::Protocol,
            State::Speech { thought: true, .. } => Channel::Reasoning,
            State::Speech { .. } => Channel::Content,
            State::Body { recipient: None, .. } => Channel::Content,
            State::Body { .. } => Channel::ToolCall,
        }
    }

    /// Whether the turn is over.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Takes text.
    pub(super) fn text(&mut self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            rest = &rest[self.step(rest)..];
            if self.voice.is_stopped() {
                self.state = State::Over;
            }
        }
    }

    /// Takes text up to a change of state; gives the bytes taken.
    fn step(&mut self, text: &str) -> usize {
        let longest = self.declared.longest();
        match &mut self.state {
            State::Over => text.len(),
            State::Header(header) => {
                let taken = header.take(text);
                if taken < text.len() {
                    self.answer_at_once();
                }
                taken
            }
            State::Speech { thought, hold } => {
                let to = Switches { declared: &self.declared, channels: self.by_token && *thought };
                let voice = &mut self.voice;
                let step = match *thought {
                    true => hold.take(text, &to, &mut |text| voice.think(text)),
                    false => hold.take(text, &to, &mut |text| voice.say(text)),
                };
                match step {
                    Step::Done => text.len(),
                    Step::Switched { name, body, taken } => {
                        self.open(Some(name));
                        self.text(&body);
                        taken
                    }
                }
            }
            State::Body { recipient, block, pending, growth } => {
                let to = Addressee { declared: &self.declared, recipient: recipient.as_deref() };
                if let Some(Pending { header: Some(header), .. }) = pending {
                    let taken = header.take(text);
                    if taken < text.len() {
                        quote(pending, block, &to);
                    }
                    return taken;
                }
                quote(pending, block, &to);
                block.take(text, &to);
                if self.growing_calls && recipient.is_some() {
                    growth.follow(block, &to, self.single_call, &mut self.voice);
                }
                if recipient.is_none() && block.is_prose() {
                    let block = std::mem::replace(block, Box::new(Block::new(longest)));
                    self.state = State::Speech { thought: false, hold: Hold::default() };
                    self.text(block.text());
                }
                text.len()
            }
        }
    }

    /// Takes a mark: a token of its own, or its letters where letters are structure.
    pub(super) fn mark(&mut self, mark: Mark) {
        match &self.state {
            State::Over => {}
            State::Header(_) => self.mark_in_header(mark),
            State::Speech { .. } => self.mark_in_speech(mark),
            State::Body { .. } => self.mark_in_body(mark),
        }
        if self.voice.is_stopped() {
            self.state = State::Over;
        }
    }

    fn mark_in_header(&mut self, mark: Mark) {
        let State::Header(header) = &mut self.state else { unreachable!("asked by the state") };
        match mark {
            Mark::Message => match header.speaker() {
                Some(speaker) => self.enter(speaker),
                None => {
                    self.answer_at_once();
                    self.mark(mark);
                }
            },
            Mark::Start => {
                if !header.start() {
                    self.answer_at_once();
                    self.mark(mark);
                }
            }
            Mark::EndOfMessage | Mark::EndOfTurn | Mark::EndOfText => {
                if header.is_empty() || header.is_framing() {
                    self.leave(mark);
                } else {
                    self.answer_at_once();
                    self.mark(mark);
                }
            }
        }
    }

    fn mark_in_speech(&mut self, mark: Mark) {
        let State::Speech { thought, hold } = &mut self.state else {
            unreachable!("asked by the state")
        };
        if mark == Mark::Message {
            if let Some(speaker) = hold.speaker() {
                self.enter(speaker);
                return;
            }
            if let Hold::Name(name) = hold {
                let channel = matches!(name.as_str(), "self" | "user");
                if channel && *thought && self.by_token {
                    let name = std::mem::take(name);
                    self.open(Some(name));
                    return;
                }
                if self.declared.is_recipient(name) {
                    let name = std::mem::take(name);
                    *hold = Hold::Switch { name, behind: String::new(), blank: 0 };
                    return;
                }
            }
        }
        let voice = &mut self.voice;
        let thought = *thought;
        let mut speak = |text: &str| if thought { voice.think(text) } else { voice.say(text) };
        hold.release(&mut speak);
        match mark {
            Mark::Message => speak(mark.text()),
            Mark::Start => *hold = Hold::Start(Header::started(self.declared.longest())),
            Mark::EndOfMessage | Mark::EndOfTurn | Mark::EndOfText => self.leave(mark),
        }
    }

    fn mark_in_body(&mut self, mark: Mark) {
        let State::Body { recipient, block, pending, .. } = &mut self.state else {
            unreachable!("asked by the state")
        };
        let to = Addressee { declared: &self.declared, recipient: recipient.as_deref() };
        match pending {
            Some(Pending { end, header: Some(header) }) => {
                let other_fits = !block.is_in_value() && end.is_none();
                match header.speaker().filter(|_| mark == Mark::Message) {
                    Some(Speaker::Assistant(name)) => {
                        let ends = end.is_some_and(Mark::ends_turn);
                        self.close_body(true);
                        match ends {
                            true => self.state = State::Over,
                            false => self.enter(Speaker::Assistant(name)),
                        }
                        return;
                    }
                    Some(Speaker::Other) if other_fits => {
                        self.close_body(true);
                        self.state = State::Over;
                        return;
                    }
                    _ => quote(pending, block, &to),
                }
            }
            Some(Pending { header, .. }) if mark == Mark::Start => {
                *header = Some(Header::started(self.declared.longest()));
                return;
            }
            _ => quote(pending, block, &to),
        }
        match mark {
            Mark::Message => self.text(mark.text()),
            Mark::Start => {
                let header = Some(Header::started(self.declared.longest()));
                *pending = Some(Pending { end: None, header });
            }
            // Inside a value only a token that ends the turn is beyond doubt.
            Mark::EndOfMessage | Mark::EndOfTurn | Mark::EndOfText
                if block.is_in_value() && !(self.by_token && mark.ends_turn()) =>
            {
                *pending = Some(Pending { end: Some(mark), header: None });
            }
            Mark::EndOfMessage | Mark::EndOfTurn | Mark::EndOfText => {
                self.close_body(true);
                self.leave(mark);
            }
        }
    }

    /// The answer ended. `partial` is text that looked like the beginning of a mark. `complete`
    /// when it was not cut.
    pub(super) fn finish(&mut self, complete: bool, partial: &str) {
        match &mut self.state {
            State::Over => {}
            State::Header(header) => {
                // A mark is one token: what only looks like one is text, unless it is the mark
                // that this header waited for.
                if header.is_empty() && !partial.is_empty() && !partial.starts_with("<|") {
                    self.answer_at_once();
                    self.finish(complete, partial);
                    return;
                }
            }
            State::Speech { thought, hold } => {
                let (voice, thought) = (&mut self.voice, *thought);
                let mut speak =
                    |text: &str| if thought { voice.think(text) } else { voice.say(text) };
                if complete || !hold.is_header() {
                    hold.release(&mut speak);
                    speak(partial);
                }
            }
            State::Body { pending, .. } => {
                let ended = pending.is_some();
                if !ended && !partial.is_empty() {
                    // It may show that this is no call but an answer.
                    self.text(partial);
                    self.finish(complete, "");
                    return;
                }
                self.close_body(complete || ended);
            }
        }
        self.voice.finish();
        self.state = State::Over;
    }

    /// What was held for a header is none: it begins an answer.
    fn answer_at_once(&mut self) {
        let due = State::Header(Header::due(self.declared.longest()));
        let State::Header(header) = std::mem::replace(&mut self.state, due) else {
            unreachable!("only a header can turn out to be none")
        };
        self.open(None);
        self.text(&header.spelled());
    }

    fn enter(&mut self, speaker: Speaker) {
        match speaker {
            Speaker::Assistant(recipient) => self.open(recipient),
            Speaker::Other => self.state = State::Over,
        }
    }

    /// A message to `recipient` begins.
    fn open(&mut self, recipient: Option<String>) {
        self.voice.message();
        let speech = |thought| State::Speech { thought, hold: Hold::default() };
        self.state = match recipient.as_deref() {
            Some("self") => speech(true),
            Some("user") => speech(false),
            _ if self.declared.is_empty() => speech(false),
            _ => State::Body {
                recipient,
                block: Box::new(Block::new(self.declared.longest())),
                pending: None,
                growth: Growth::default(),
            },
        };
    }

    /// A message ended with `mark`.
    fn leave(&mut self, mark: Mark) {
        self.state = match mark.ends_turn() {
            true => State::Over,
            false => State::Header(Header::due(self.declared.longest())),
        };
    }

    /// A message to a tool ended, or was cut.
    fn close_body(&mut self, finished: bool) {
        let over = std::mem::replace(&mut self.state, State::Over);
        let State::Body { recipient, mut block, mut growth, .. } = over else {
            unreachable!("only a body is closed")
        };
        let (invokes, pure) = block.end(finished);
        let calls: Vec<ToolCall> = match &recipient {
            None if !pure => Vec::new(),
            to => {
                let whole = invokes.iter().filter_map(|invoke| {
                    let call = self.call(invoke, to.as_deref(), &block)?;
                    Some((invoke.serial, call))
                });
                let whole = whole.collect();
                growth.settle(whole, &mut self.voice)
            }
        };
        if !calls.is_empty() {
            let most = if self.single_call { 1 } else { calls.len() };
            calls.into_iter().take(most).for_each(|call| self.voice.call(call));
            if self.single_call {
                self.voice.finish();
            }
            return;
        }
        let text = block.text();
        match &recipient {
            None if finished || !text.trim_ascii_start().starts_with("<atem:") => {
                self.voice.say(text);
            }
            Some(_) if finished => {
                let spelled = Mark::ALL
                    .iter()
                    .fold(text.to_owned(), |text, mark| text.replace(mark.text(), ""));
                self.voice.say(&spelled);
            }
            // A cut call is dropped; a cut note to nobody known is all the same an answer.
            Some(name) if !self.declared.is_recipient(name) && !text.contains("<atem:") => {
                self.voice.say(text);
            }
            _ => {}
        }
    }

    /// The call of an invoke, unless it contradicts the message's recipient.
    fn call(&self, invoke: &Invoke, recipient: Option<&str>, block: &Block) -> Option<ToolCall> {
        let name = self.declared.invoked(&invoke.name, recipient)?;
        let root = self.declared.schema(name);
        let arguments = invoke.parameters.iter().map(|(key, range)| {
            (key.clone(), schema::typed(&block.text()[range.clone()], key, root))
        });
        let arguments = Json::object(arguments.collect());
        Some(ToolCall {
            id: super::id::call_id(),
            name: name.to_owned(),
            arguments: arguments.to_compact(),
        })
    }
}

/// What was held behind a mark is text of the value after all.
fn quote(pending: &mut Option<Pending>, block: &mut Block, to: &Addressee<'_>) {
    let Some(Pending { end, header }) = pending.take() else { return };
    if let Some(mark) = end {
        block.take(mark.text(), to);
    }
    if let Some(header) = header {
        block.take(&header.spelled(), to);
    }
}
