//! Parses one answer of the assistant: which message is open and what its text means. Takes text
//! and special tokens; token ids and bytes are decoded by the callers in `mod.rs`.

use muse_core::contract::{Channel, Conversation, ParsedEvent, PromptPart, ToolCall};

use super::argument_value;
use super::call_deltas::CallDeltas;
use super::event_buffer::{ContentRange, EventBuffer};
use super::header::{HeaderParser, Sender};
use super::special_tokens::without_special_tokens;
use super::text_message::{HeldText, RecipientSwitch, TextStep};
use super::tool_block::{CallTarget, Invoke, ToolBlockParser};
use super::tools::DeclaredTools;
use crate::answer_prefix::AnswerPrefix;
use crate::json::Json;
use crate::special_token::SpecialToken;

/// An answer while it is generated.
pub(super) struct AnswerParser {
    declared: DeclaredTools,
    /// Special tokens come as tokens of their own; the same spelling in text is text.
    special_as_tokens: bool,
    single_call: bool,
    growing_calls: bool,
    state: AnswerState,
    events: EventBuffer,
    /// Position of the input at hand in the text of all tokens, special tokens spelled.
    position: usize,
    /// Position of the open message's text.
    message_start: usize,
}

enum AnswerState {
    /// A message header is expected.
    Header(HeaderParser),
    /// Reasoning, or the visible answer.
    Text { is_reasoning: bool, held: HeldText },
    /// A message to a tool, or one without recipient that may still turn out to be a call.
    ToolCall {
        recipient: Option<String>,
        block: Box<ToolBlockParser>,
        pending: Option<PendingToken>,
        deltas: CallDeltas,
    },
    /// The answer is over; everything that follows is ignored.
    Done,
}

/// A special token within a message to a tool, until what follows decides whether it ends the
/// message or belongs to a value.
struct PendingToken {
    /// The token; none when the header below began with its own `<|start|>`.
    end: Option<SpecialToken>,
    header: Option<HeaderParser>,
}

impl AnswerParser {
    /// `special_as_tokens` when special tokens come through [`AnswerParser::special`] only.
    pub(super) fn new(
        conversation: &Conversation,
        stop: &[String],
        special_as_tokens: bool,
    ) -> Self {
        let declared = DeclaredTools::new(&conversation.tools);
        let state = AnswerState::Header(HeaderParser::expected(declared.longest()));
        let mut parser = Self {
            declared,
            special_as_tokens,
            single_call: conversation.single_call,
            growing_calls: conversation.growing_calls,
            state,
            events: EventBuffer::new(stop, special_as_tokens),
            position: 0,
            message_start: 0,
        };
        let Some(prefix) = AnswerPrefix::of(&conversation.answer_prefix) else { return parser };
        for part in prefix.headers {
            match part {
                PromptPart::Text(text) => parser.text(text),
                PromptPart::Special(spelling) => {
                    if let Some(token) =
                        SpecialToken::ALL.into_iter().find(|token| token.text() == *spelling)
                    {
                        parser.special(token);
                    }
                }
                PromptPart::Image(_) | PromptPart::Video(_) => {}
            }
        }
        // The answer is what follows the prompt.
        parser.events.discard();
        if prefix.continues() {
            parser.events.continue_message(prefix.is_reasoning());
        }
        parser
    }

    /// Moves the events so far to `out`.
    pub(super) fn drain(&mut self, out: &mut Vec<ParsedEvent>) {
        self.events.drain(out);
    }

    /// Announces `bytes` of text before the next [`AnswerParser::drain`].
    pub(super) fn reserve(&mut self, bytes: usize) {
        self.events.reserve(bytes);
    }

    /// The channel that text would belong to if it came now.
    pub(super) fn channel(&self) -> Channel {
        match &self.state {
            AnswerState::Header(_) | AnswerState::Done => Channel::Protocol,
            AnswerState::Text { held, .. } if held.is_header() => Channel::Protocol,
            AnswerState::Text { is_reasoning: true, .. } => Channel::Reasoning,
            AnswerState::Text { .. } => Channel::Content,
            AnswerState::ToolCall { recipient: None, .. } => Channel::Content,
            AnswerState::ToolCall { .. } => Channel::ToolCall,
        }
    }

    /// Whether the answer is over.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, AnswerState::Done)
    }

    /// Bytes of text so far, special tokens spelled.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Up to which position text is settled: what lies before was emitted or is no content.
    pub(super) fn settled(&self) -> usize {
        let settled = match &self.state {
            AnswerState::Header(header) => self.position - header.len(),
            AnswerState::Text { .. } => self.events.position(),
            AnswerState::ToolCall { .. } => self.message_start,
            AnswerState::Done => usize::MAX,
        };
        self.events.held_from().map_or(settled, |held| held.min(settled))
    }

    /// Where the content emitted since the last call came from.
    pub(super) fn take_content_ranges(&mut self) -> impl Iterator<Item = ContentRange> + '_ {
        self.events.take_ranges()
    }

    /// Takes text.
    pub(super) fn text(&mut self, text: &str) {
        let start = self.position;
        let mut taken = 0;
        while taken < text.len() {
            self.position = start + taken;
            taken += self.step(&text[taken..]);
            if self.events.is_stopped() {
                self.state = AnswerState::Done;
            }
        }
        self.position = start + text.len();
    }

    /// Takes text up to the next change of state; returns how many bytes were taken.
    fn step(&mut self, text: &str) -> usize {
        let longest = self.declared.longest();
        match &mut self.state {
            AnswerState::Done => text.len(),
            AnswerState::Header(header) => {
                let taken = header.take(text);
                if taken < text.len() {
                    self.header_is_answer(self.position + taken);
                }
                taken
            }
            AnswerState::Text { is_reasoning, held } => {
                let to = RecipientSwitch {
                    declared: &self.declared,
                    channels: self.special_as_tokens && *is_reasoning,
                };
                let events = &mut self.events;
                let step = match *is_reasoning {
                    true => held.take(text, &to, &mut |text| events.reasoning(text)),
                    false => held.take(text, &to, &mut |text| events.content(text)),
                };
                match step {
                    TextStep::Done => text.len(),
                    TextStep::Switched { name, body, taken } => {
                        self.open(Some(name), self.position + taken - body.len());
                        self.again(&body);
                        taken
                    }
                }
            }
            AnswerState::ToolCall { recipient, block, pending, deltas } => {
                let to = CallTarget { declared: &self.declared, recipient: recipient.as_deref() };
                if let Some(PendingToken { header: Some(header), .. }) = pending {
                    let taken = header.take(text);
                    if taken < text.len() {
                        keep_as_text(pending, block, &to);
                    }
                    return taken;
                }
                keep_as_text(pending, block, &to);
                block.take(text, &to);
                if self.growing_calls && recipient.is_some() {
                    deltas.update(block, &to, self.single_call, &mut self.events);
                }
                if recipient.is_none() && block.is_text() {
                    let block = std::mem::replace(block, Box::new(ToolBlockParser::new(longest)));
                    self.state =
                        AnswerState::Text { is_reasoning: false, held: HeldText::default() };
                    self.again(block.text());
                }
                text.len()
            }
        }
    }

    /// Takes text of the open message again that its state held back.
    fn again(&mut self, text: &str) {
        self.position = self.message_start;
        self.text(text);
    }

    /// Takes a special token.
    pub(super) fn special(&mut self, token: SpecialToken) {
        let end = self.position + token.text().len();
        match &self.state {
            AnswerState::Done => {}
            AnswerState::Header(_) => self.special_in_header(token),
            AnswerState::Text { .. } => self.special_in_text(token),
            AnswerState::ToolCall { .. } => self.special_in_tool_call(token),
        }
        self.position = end;
        if self.events.is_stopped() {
            self.state = AnswerState::Done;
        }
    }

    fn special_in_header(&mut self, token: SpecialToken) {
        let AnswerState::Header(header) = &mut self.state else {
            unreachable!("the caller matched the state")
        };
        match token {
            SpecialToken::Message => match header.sender() {
                Some(sender) => self.enter(sender),
                None => {
                    self.header_is_answer(self.position);
                    self.special(token);
                }
            },
            SpecialToken::Start => {
                if !header.start() {
                    self.header_is_answer(self.position);
                    self.special(token);
                }
            }
            SpecialToken::EndOfMessage | SpecialToken::EndOfTurn | SpecialToken::EndOfText => {
                if header.is_empty() || header.is_framing() {
                    self.end_message(token);
                } else {
                    self.header_is_answer(self.position);
                    self.special(token);
                }
            }
        }
    }

    fn special_in_text(&mut self, token: SpecialToken) {
        let AnswerState::Text { is_reasoning, held } = &mut self.state else {
            unreachable!("the caller matched the state")
        };
        if token == SpecialToken::Message {
            if let Some(sender) = held.sender() {
                self.enter(sender);
                return;
            }
            if let HeldText::Name(name) = held {
                let channel = matches!(name.as_str(), "self" | "user");
                if channel && *is_reasoning && self.special_as_tokens {
                    let name = std::mem::take(name);
                    self.open(Some(name), self.position + token.text().len());
                    return;
                }
                if self.declared.is_recipient(name) {
                    let name = std::mem::take(name);
                    *held = HeldText::Switch { name, after: String::new(), blank: 0 };
                    return;
                }
            }
        }
        let events = &mut self.events;
        let is_reasoning = *is_reasoning;
        let mut emit =
            |text: &str| if is_reasoning { events.reasoning(text) } else { events.content(text) };
        held.release(&mut emit);
        match token {
            SpecialToken::Message => emit(token.text()),
            SpecialToken::Start => {
                *held = HeldText::Start(HeaderParser::started(self.declared.longest()))
            }
            SpecialToken::EndOfMessage | SpecialToken::EndOfTurn | SpecialToken::EndOfText => {
                self.end_message(token)
            }
        }
    }

    fn special_in_tool_call(&mut self, token: SpecialToken) {
        let AnswerState::ToolCall { recipient, block, pending, .. } = &mut self.state else {
            unreachable!("the caller matched the state")
        };
        let to = CallTarget { declared: &self.declared, recipient: recipient.as_deref() };
        match pending {
            Some(PendingToken { end, header: Some(header) }) => {
                let other_fits = !block.is_in_value() && end.is_none();
                match header.sender().filter(|_| token == SpecialToken::Message) {
                    Some(Sender::Assistant(name)) => {
                        let ends = end.is_some_and(SpecialToken::ends_turn);
                        self.close_tool_call(true);
                        match ends {
                            true => self.state = AnswerState::Done,
                            false => self.enter(Sender::Assistant(name)),
                        }
                        return;
                    }
                    Some(Sender::Other) if other_fits => {
                        self.close_tool_call(true);
                        self.state = AnswerState::Done;
                        return;
                    }
                    _ => keep_as_text(pending, block, &to),
                }
            }
            Some(PendingToken { header, .. }) if token == SpecialToken::Start => {
                *header = Some(HeaderParser::started(self.declared.longest()));
                return;
            }
            _ => keep_as_text(pending, block, &to),
        }
        match token {
            SpecialToken::Message => self.text(token.text()),
            SpecialToken::Start => {
                let header = Some(HeaderParser::started(self.declared.longest()));
                *pending = Some(PendingToken { end: None, header });
            }
            // Inside a value, only an end-of-turn token given by its id certainly ends the message.
            SpecialToken::EndOfMessage | SpecialToken::EndOfTurn | SpecialToken::EndOfText
                if block.is_in_value() && !(self.special_as_tokens && token.ends_turn()) =>
            {
                *pending = Some(PendingToken { end: Some(token), header: None });
            }
            SpecialToken::EndOfMessage | SpecialToken::EndOfTurn | SpecialToken::EndOfText => {
                self.close_tool_call(true);
                self.end_message(token);
            }
        }
    }

    /// The answer ended. `partial` is text that was held back because a special token begins with
    /// it. `complete` when the model ended the answer, false when it was cut.
    pub(super) fn finish(&mut self, complete: bool, partial: &str) {
        match &mut self.state {
            AnswerState::Done => {}
            AnswerState::Header(header) => {
                // With the header still empty, `<` alone is text of an answer; text from `<|` on is
                // the beginning of the special token that the header needs, and is dropped.
                if header.is_empty() && !partial.is_empty() && !partial.starts_with("<|") {
                    self.header_is_answer(self.position);
                    self.finish(complete, partial);
                    return;
                }
            }
            AnswerState::Text { is_reasoning, held } => {
                let (events, is_reasoning) = (&mut self.events, *is_reasoning);
                let mut emit = |text: &str| {
                    if is_reasoning { events.reasoning(text) } else { events.content(text) }
                };
                if complete || !held.is_header() {
                    held.release(&mut emit);
                    emit(partial);
                }
            }
            AnswerState::ToolCall { pending, .. } => {
                let ended = pending.is_some();
                if !ended && !partial.is_empty() {
                    // This text may show that the message is text, not a call.
                    self.text(partial);
                    self.finish(complete, "");
                    return;
                }
                self.close_tool_call(complete || ended);
            }
        }
        self.events.finish();
        self.state = AnswerState::Done;
    }

    /// What was held back as a header cannot become one: it is the beginning of a visible answer.
    fn header_is_answer(&mut self, end: usize) {
        let empty = AnswerState::Header(HeaderParser::expected(self.declared.longest()));
        let AnswerState::Header(header) = std::mem::replace(&mut self.state, empty) else {
            unreachable!("the caller matched the state")
        };
        self.open(None, end - header.len());
        self.again(&header.into_text());
    }

    /// `<|message|>` ended the header of a message from `sender`.
    fn enter(&mut self, sender: Sender) {
        let start = self.position + SpecialToken::Message.text().len();
        match sender {
            Sender::Assistant(recipient) => self.open(recipient, start),
            Sender::Other => self.state = AnswerState::Done,
        }
    }

    /// A message to `recipient` begins, its text at `start`.
    fn open(&mut self, recipient: Option<String>, start: usize) {
        self.message_start = start;
        self.events.start_message(start);
        let text = |is_reasoning| AnswerState::Text { is_reasoning, held: HeldText::default() };
        self.state = match recipient.as_deref() {
            Some("self") => text(true),
            Some("user") => text(false),
            _ if self.declared.is_empty() => text(false),
            _ => AnswerState::ToolCall {
                recipient,
                block: Box::new(ToolBlockParser::new(self.declared.longest())),
                pending: None,
                deltas: CallDeltas::default(),
            },
        };
    }

    /// A message ended with `token`.
    fn end_message(&mut self, token: SpecialToken) {
        self.state = match token.ends_turn() {
            true => AnswerState::Done,
            false => AnswerState::Header(HeaderParser::expected(self.declared.longest())),
        };
    }

    /// A message to a tool ended (`finished`), or was cut.
    fn close_tool_call(&mut self, finished: bool) {
        let state = std::mem::replace(&mut self.state, AnswerState::Done);
        let AnswerState::ToolCall { recipient, mut block, mut deltas, .. } = state else {
            unreachable!("the caller matched the state")
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
                deltas.settle(whole, &mut self.events)
            }
        };
        if !calls.is_empty() {
            let max = if self.single_call { 1 } else { calls.len() };
            calls.into_iter().take(max).for_each(|call| self.events.call(call));
            if self.single_call {
                self.events.finish();
            }
            return;
        }
        let text = block.text();
        match &recipient {
            None if finished || !text.trim_ascii_start().starts_with("<atem:") => {
                self.events.content(text);
            }
            Some(_) if finished => {
                for part in without_special_tokens(text) {
                    self.events.seek(self.message_start + part.start);
                    self.events.content(&text[part]);
                }
            }
            // A cut call is dropped. A cut message to an undeclared recipient, without any call
            // tag, is content.
            Some(name) if !self.declared.is_recipient(name) && !text.contains("<atem:") => {
                self.events.content(text);
            }
            _ => {}
        }
    }

    /// The call of an invoke; `None` when it contradicts the recipient of the message.
    fn call(
        &self,
        invoke: &Invoke,
        recipient: Option<&str>,
        block: &ToolBlockParser,
    ) -> Option<ToolCall> {
        let name = self.declared.invoked(&invoke.name, recipient)?;
        let root = self.declared.schema(name);
        let arguments = invoke.parameters.iter().map(|(key, range)| {
            (key.clone(), argument_value::typed(&block.text()[range.clone()], key, root))
        });
        let arguments = Json::object(arguments.collect());
        Some(ToolCall {
            id: super::call_id::new_call_id(),
            name: name.to_owned(),
            arguments: arguments.to_compact(),
        })
    }
}

/// The held-back token and header turned out to be text of the parameter's value.
fn keep_as_text(
    pending: &mut Option<PendingToken>,
    block: &mut ToolBlockParser,
    to: &CallTarget<'_>,
) {
    let Some(PendingToken { end, header }) = pending.take() else { return };
    if let Some(token) = end {
        block.take(token.text(), to);
    }
    if let Some(header) = header {
        block.take(&header.into_text(), to);
    }
}
