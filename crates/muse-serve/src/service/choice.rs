//! One answer as it is heard: tokens to events, and what counts as reasoning.

use muse_core::contract::{
    Channel, Done, FinishReason, OutputParser, ParsedEvent, Sampled, Timings, Token, ToolCall,
    Usage,
};

use super::Refusal;

/// What happens in a chat, for each choice in this order: progress, then reasoning, text and calls
/// as they come, one `Spent`, one `End`.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatEvent {
    /// Prompt tokens that are through the model, of how many.
    Progress {
        /// Tokens done.
        done: u32,
        /// All tokens.
        total: u32,
    },
    /// More of the reasoning.
    Think(String),
    /// More of the answer.
    Say {
        /// The text to append.
        text: String,
        /// Its tokens, when log-probabilities are asked for.
        tokens: Vec<Sampled>,
    },
    /// A whole tool call.
    Call(ToolCall),
    /// More of a call that is still being written, told when the conversation asks for it; the
    /// whole call follows under the same id unless the answer is cut.
    CallPart(ToolCall),
    /// What the choice took.
    Spent(Spent),
    /// The end of the choice.
    End(End),
}

/// What a completion took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spent {
    /// Tokens.
    pub usage: Usage,
    /// Tokens of the completion that are inside reasoning.
    pub reasoning: u32,
    /// Time.
    pub timings: Timings,
}

/// Why a completion ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A stop token came.
    StopToken(Token),
    /// A stop text came.
    StopText(String),
    /// The limit, or the model's room, is used up.
    Length,
    /// Tools were called.
    Calls,
}

/// One answer.
pub(super) struct Choice {
    listener: Box<dyn OutputParser>,
    heard: Vec<ParsedEvent>,
    logprobs: bool,
    /// Whether the answer ends behind its first call.
    one_call: bool,
    calls: u32,
    /// Why the rest of the answer is not heard.
    closed: Option<Closed>,
    reasoning: u32,
    /// Tokens of the answer that no text was heard of yet.
    held: Vec<Sampled>,
}

enum Closed {
    StopText(String),
    OneCall,
}

impl Choice {
    pub(super) fn new(listener: Box<dyn OutputParser>, logprobs: bool, one_call: bool) -> Self {
        Self {
            listener,
            heard: Vec::new(),
            logprobs,
            one_call,
            calls: 0,
            closed: None,
            reasoning: 0,
            held: Vec::new(),
        }
    }

    /// Hears a token. Returns whether the request is to be cancelled.
    pub(super) fn push(&mut self, picked: Sampled, emit: &mut dyn FnMut(ChatEvent)) -> bool {
        if self.closed.is_some() {
            return false;
        }
        self.listener.push(picked.token, &mut self.heard);
        match self.listener.channel() {
            Channel::Reasoning => self.reasoning += 1,
            Channel::Content if self.logprobs => self.held.push(picked),
            Channel::Content | Channel::Protocol | Channel::ToolCall => {}
        }
        self.tell(emit);
        self.closed.is_some()
    }

    /// Hears the end.
    pub(super) fn done(
        &mut self,
        done: Done,
        emit: &mut dyn FnMut(ChatEvent),
    ) -> Result<(), Refusal> {
        let complete = matches!(done.reason, FinishReason::Stop(_));
        if self.closed.is_none() {
            self.listener.finish(complete, &mut self.heard);
            self.tell(emit);
        }
        let called = self.calls > 0;
        let end = match (self.closed.take(), done.reason) {
            (Some(Closed::OneCall), _) => End::Calls,
            (Some(Closed::StopText(_)), _) | (None, FinishReason::Stop(_)) if called => End::Calls,
            (Some(Closed::StopText(text)), _) => End::StopText(text),
            (None, reason) => ended(reason)?,
        };
        let spent = Spent { usage: done.usage, reasoning: self.reasoning, timings: done.timings };
        emit(ChatEvent::Spent(spent));
        emit(ChatEvent::End(end));
        Ok(())
    }

    fn tell(&mut self, emit: &mut dyn FnMut(ChatEvent)) {
        for heard in self.heard.drain(..) {
            match heard {
                _ if self.closed.is_some() => {}
                ParsedEvent::Reasoning(text) => emit(ChatEvent::Think(text)),
                ParsedEvent::Content(text) => {
                    emit(ChatEvent::Say { text, tokens: std::mem::take(&mut self.held) });
                }
                ParsedEvent::ToolCall(call) => {
                    self.calls += 1;
                    emit(ChatEvent::Call(call));
                    if self.one_call {
                        self.closed = Some(Closed::OneCall);
                    }
                }
                ParsedEvent::ToolCallDelta(part) => emit(ChatEvent::CallPart(part)),
                ParsedEvent::StopText(text) => self.closed = Some(Closed::StopText(text)),
            }
        }
    }
}

/// How a completion ended by itself.
pub(super) fn ended(reason: FinishReason) -> Result<End, Refusal> {
    match reason {
        FinishReason::Stop(token) => Ok(End::StopToken(token)),
        FinishReason::Length => Ok(End::Length),
        // Clients that leave never see this, so it was the server.
        FinishReason::Cancelled => Err(Refusal::Stopped),
        FinishReason::Deadline => Err(Refusal::Deadline),
        FinishReason::Failed(error) => Err(error.into()),
    }
}
