//! One answer of a request: parses its tokens into events and counts its reasoning tokens.

use muse_core::contract::{
    Channel, Done, FinishReason, OutputParser, ParsedEvent, Sampled, Token, ToolCall,
};

use super::{ChatUsage, ServiceError};

/// What happens in a chat. For each choice in this order: progress, then reasoning, content and
/// calls as they come, one `Usage`, one `Finish`.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatEvent {
    /// Prompt tokens that are prefilled, of how many.
    Progress {
        /// Tokens done.
        done: u32,
        /// All tokens.
        total: u32,
    },
    /// More of the reasoning.
    Reasoning(String),
    /// More of the visible answer.
    Content {
        /// The text to append.
        text: String,
        /// Its tokens, when log-probabilities were requested.
        tokens: Vec<Sampled>,
    },
    /// A whole tool call.
    ToolCall(ToolCall),
    /// More of a call that is still being generated, when the conversation asks for it. The whole
    /// call follows under the same id unless the answer is cut.
    ToolCallDelta(ToolCall),
    /// What the choice took.
    Usage(ChatUsage),
    /// The end of the choice.
    Finish(ChatFinish),
}

/// Why a completion ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatFinish {
    /// A stop token was sampled.
    StopToken(Token),
    /// A stop text was met.
    StopText(String),
    /// The limit on tokens or the model's positions are used up.
    Length,
    /// Tools were called.
    ToolCalls,
}

impl ChatFinish {
    /// How a completion ended that nothing but the engine ended.
    pub(super) fn from_engine(reason: FinishReason) -> Result<Self, ServiceError> {
        match reason {
            FinishReason::Stop(token) => Ok(Self::StopToken(token)),
            FinishReason::Length => Ok(Self::Length),
            // A client that leaves never reads this, so the server cancelled it.
            FinishReason::Cancelled => Err(ServiceError::Stopped),
            FinishReason::Deadline => Err(ServiceError::DeadlineExceeded),
            FinishReason::Failed(error) => Err(error.into()),
        }
    }
}

/// The state of one answer.
pub(super) struct ChoiceState {
    parser: Box<dyn OutputParser>,
    parsed: Vec<ParsedEvent>,
    logprobs: bool,
    /// Whether the answer ends with its first call.
    single_call: bool,
    calls: u32,
    /// Why the answer ended before the engine's end; later tokens are ignored.
    ended: Option<Ended>,
    reasoning_tokens: u32,
    /// Tokens of the visible answer whose text the parser has not emitted yet.
    pending: Vec<Sampled>,
}

enum Ended {
    StopText(String),
    SingleCall,
}

impl ChoiceState {
    pub(super) fn new(parser: Box<dyn OutputParser>, logprobs: bool, single_call: bool) -> Self {
        Self {
            parser,
            parsed: Vec::new(),
            logprobs,
            single_call,
            calls: 0,
            ended: None,
            reasoning_tokens: 0,
            pending: Vec::new(),
        }
    }

    /// Takes a token. Returns whether the request is to be cancelled.
    pub(super) fn push(&mut self, sampled: Sampled, emit: &mut dyn FnMut(ChatEvent)) -> bool {
        if self.ended.is_some() {
            return false;
        }
        self.parser.push(sampled.token, &mut self.parsed);
        match self.parser.channel() {
            Channel::Reasoning => self.reasoning_tokens += 1,
            Channel::Content if self.logprobs => self.pending.push(sampled),
            Channel::Content | Channel::Protocol | Channel::ToolCall => {}
        }
        self.emit_parsed(emit);
        self.ended.is_some()
    }

    /// Takes the engine's end.
    pub(super) fn finish(
        &mut self,
        done: Done,
        emit: &mut dyn FnMut(ChatEvent),
    ) -> Result<(), ServiceError> {
        if self.ended.is_none() {
            let complete = matches!(done.reason, FinishReason::Stop(_));
            self.parser.finish(complete, &mut self.parsed);
            self.emit_parsed(emit);
        }
        let called = self.calls > 0;
        let finish = match (self.ended.take(), done.reason) {
            (Some(Ended::SingleCall), _) => ChatFinish::ToolCalls,
            (Some(Ended::StopText(_)), _) | (None, FinishReason::Stop(_)) if called => {
                ChatFinish::ToolCalls
            }
            (Some(Ended::StopText(text)), _) => ChatFinish::StopText(text),
            (None, reason) => ChatFinish::from_engine(reason)?,
        };
        emit(ChatEvent::Usage(ChatUsage {
            tokens: done.usage,
            reasoning: self.reasoning_tokens,
            timings: done.timings,
        }));
        emit(ChatEvent::Finish(finish));
        Ok(())
    }

    fn emit_parsed(&mut self, emit: &mut dyn FnMut(ChatEvent)) {
        for event in self.parsed.drain(..) {
            match event {
                _ if self.ended.is_some() => {}
                ParsedEvent::Reasoning(text) => emit(ChatEvent::Reasoning(text)),
                ParsedEvent::Content(text) => {
                    let tokens = std::mem::take(&mut self.pending);
                    emit(ChatEvent::Content { text, tokens });
                }
                ParsedEvent::ToolCall(call) => {
                    self.calls += 1;
                    emit(ChatEvent::ToolCall(call));
                    if self.single_call {
                        self.ended = Some(Ended::SingleCall);
                    }
                }
                ParsedEvent::ToolCallDelta(delta) => emit(ChatEvent::ToolCallDelta(delta)),
                ParsedEvent::StopText(text) => self.ended = Some(Ended::StopText(text)),
            }
        }
    }
}
