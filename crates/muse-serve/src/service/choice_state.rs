//! One answer of a request: parses its tokens into events and counts its reasoning tokens.

use muse_core::contract::{
    Channel, Done, FinishReason, OutputParser, ParsedEvent, Sampled, Token, ToolCall,
};

use super::content_tokens::ContentTokens;
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
        /// The text to append; empty when only tokens follow.
        text: String,
        /// Tokens of the content so far, when log-probabilities were requested. Their bytes, joined
        /// over all events, are those of the texts.
        tokens: Vec<AnswerToken>,
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

/// A token of the visible answer.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerToken {
    /// The token.
    pub sampled: Sampled,
    /// The bytes of the answer that it accounts for: all of its own unless a part of them is a
    /// header or a stop text.
    pub bytes: Vec<u8>,
}

/// Why a completion ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatFinish {
    /// A stop token was sampled.
    StopToken(Token),
    /// A stop text was met.
    StopText(String),
    /// The limit on tokens or the model's positions are used up.
    Length {
        /// The call that was being generated in deltas, with the arguments so far left out.
        incomplete_call: Option<ToolCall>,
    },
    /// Tools were called.
    ToolCalls,
}

impl ChatFinish {
    /// How a completion ended that nothing but the engine ended.
    pub(super) fn from_engine(reason: FinishReason) -> Result<Self, ServiceError> {
        match reason {
            FinishReason::Stop(token) => Ok(Self::StopToken(token)),
            FinishReason::Length => Ok(Self::Length { incomplete_call: None }),
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
    /// Assigns tokens to the content when log-probabilities were requested.
    tokens: Option<ContentTokens>,
    /// Whether the answer ends with its first call.
    single_call: bool,
    calls: u32,
    /// The call that is being generated in deltas.
    growing: Option<ToolCall>,
    /// Why the answer ended before the engine's end; later tokens are ignored.
    ended: Option<Ended>,
    /// Tokens up to the end of the answer.
    completion_tokens: u32,
    reasoning_tokens: u32,
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
            tokens: logprobs.then(ContentTokens::default),
            single_call,
            calls: 0,
            growing: None,
            ended: None,
            completion_tokens: 0,
            reasoning_tokens: 0,
        }
    }

    /// Takes a token. Returns whether the request is to be cancelled.
    pub(super) fn push(&mut self, sampled: Sampled, emit: &mut dyn FnMut(ChatEvent)) -> bool {
        if self.ended.is_some() {
            return false;
        }
        self.completion_tokens += 1;
        self.parser.push(sampled.token, &mut self.parsed);
        let channel = self.parser.channel();
        self.reasoning_tokens += u32::from(channel == Channel::Reasoning);
        if let Some(tokens) = &mut self.tokens {
            tokens.push(sampled, channel);
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
        let mut finish = match (self.ended.take(), done.reason) {
            (Some(Ended::SingleCall), _) => ChatFinish::ToolCalls,
            (Some(Ended::StopText(_)), _) | (None, FinishReason::Stop(_)) if called => {
                ChatFinish::ToolCalls
            }
            (Some(Ended::StopText(text)), _) => ChatFinish::StopText(text),
            (None, reason) => ChatFinish::from_engine(reason)?,
        };
        if let ChatFinish::Length { incomplete_call } = &mut finish {
            *incomplete_call = self.growing.take();
        }
        // The engine goes on until it notices that it was cancelled; those tokens do not count.
        let mut tokens = done.usage;
        tokens.truncate(self.completion_tokens);
        let (reasoning, timings) = (self.reasoning_tokens, done.timings);
        emit(ChatEvent::Usage(ChatUsage { tokens, reasoning, timings }));
        emit(ChatEvent::Finish(finish));
        Ok(())
    }

    fn emit_parsed(&mut self, emit: &mut dyn FnMut(ChatEvent)) {
        for event in std::mem::take(&mut self.parsed) {
            if self.ended.is_some() {
                break;
            }
            self.emit_event(event, emit);
        }
        if let Some(tokens) = &mut self.tokens {
            let tokens = tokens.settle(self.parser.as_mut());
            if !tokens.is_empty() {
                emit(ChatEvent::Content { text: String::new(), tokens });
            }
        }
    }

    fn emit_event(&mut self, event: ParsedEvent, emit: &mut dyn FnMut(ChatEvent)) {
        match event {
            ParsedEvent::Reasoning(text) => emit(ChatEvent::Reasoning(text)),
            ParsedEvent::Content(text) => {
                if let Some(tokens) = &mut self.tokens {
                    tokens.push_text(&text);
                }
                emit(ChatEvent::Content { text, tokens: Vec::new() });
            }
            ParsedEvent::ToolCall(call) => {
                self.calls += 1;
                self.growing = None;
                emit(ChatEvent::ToolCall(call));
                if self.single_call {
                    self.ended = Some(Ended::SingleCall);
                }
            }
            ParsedEvent::ToolCallDelta(delta) => {
                self.growing = Some(ToolCall { arguments: String::new(), ..delta.clone() });
                emit(ChatEvent::ToolCallDelta(delta));
            }
            ParsedEvent::StopText(text) => self.ended = Some(Ended::StopText(text)),
        }
    }
}
