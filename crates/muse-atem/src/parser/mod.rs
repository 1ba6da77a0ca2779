//! The output parser: generated tokens or text to reasoning, content and tool calls. Events are
//! never taken back, and they do not depend on how the input is split.

mod answer;
mod argument_value;
mod call_deltas;
mod call_id;
mod content_tokens;
mod event_buffer;
mod header;
mod special_tokens;
mod stop_texts;
mod tags;
mod text_message;
mod tool_block;
mod tools;
mod utf8;
mod work_counter;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use muse_core::contract::{
    Channel, ContentToken, Conversation, OutputParser, ParsedEvent, Token, Tokenizer,
};

use crate::special_token::SpecialToken;
use answer::AnswerParser;
use content_tokens::ContentTokens;
use special_tokens::{SpecialTokenSplitter, TextPart};
use utf8::Utf8Decoder;

/// Parses an answer from its token ids: only real special tokens are structure, the same spelling
/// in ordinary tokens is text.
pub struct TokenOutputParser {
    tokenizer: Arc<dyn Tokenizer>,
    /// The five special tokens with their ids; searching a short list is faster than hashing.
    special_tokens: Vec<(Token, SpecialToken)>,
    answer: AnswerParser,
    utf8: Utf8Decoder,
    /// Bytes of the current token.
    bytes: Vec<u8>,
    channel: Channel,
    content: ContentTokens,
}

impl TokenOutputParser {
    /// A parser for one answer to `conversation`; see
    /// [`muse_core::contract::PromptTemplate::output_parser`].
    pub fn new(
        conversation: &Conversation,
        stop: &[String],
        tokenizer: Arc<dyn Tokenizer>,
    ) -> Self {
        let special_tokens = SpecialToken::ALL
            .into_iter()
            .filter_map(|token| Some((tokenizer.special_token(token.text())?, token)))
            .collect();
        let answer = AnswerParser::new(conversation, stop, true);
        Self {
            tokenizer,
            special_tokens,
            content: ContentTokens::default(),
            answer,
            utf8: Utf8Decoder::default(),
            bytes: Vec::new(),
            channel: Channel::Protocol,
        }
    }
}

impl OutputParser for TokenOutputParser {
    fn push(&mut self, token: Token, out: &mut Vec<ParsedEvent>) {
        let answer = &mut self.answer;
        match self.special_tokens.iter().find(|(id, _)| *id == token) {
            Some(&(_, token)) => {
                self.utf8.flush(|text| answer.text(text));
                self.content.end_last_at(answer.position());
                answer.special(token);
                self.content.push(answer.position());
                self.channel = Channel::Protocol;
            }
            None => {
                self.bytes.clear();
                self.tokenizer.decode(token, &mut self.bytes);
                answer.reserve(self.bytes.len());
                let start = answer.position();
                if self.utf8.push(&self.bytes, |text| answer.text(text)) {
                    self.content.end_last_at(start + '\u{fffd}'.len_utf8());
                }
                self.content.push(answer.position() + self.utf8.held());
                self.channel = answer.channel();
            }
        }
        answer.drain(out);
    }

    fn finish(&mut self, complete: bool, out: &mut Vec<ParsedEvent>) {
        let answer = &mut self.answer;
        self.utf8.flush(|text| answer.text(text));
        self.content.end_last_at(answer.position());
        answer.finish(complete, "");
        answer.drain(out);
    }

    fn channel(&self) -> Channel {
        self.channel
    }

    fn content_tokens(&mut self, out: &mut Vec<ContentToken>) {
        let settled = self.answer.settled();
        self.content.settle(self.answer.take_content_ranges(), settled, out);
    }
}

/// Parses an answer from text in which special tokens are spelled out, as another engine streams
/// it. A spelled special token is structure wherever one can stand.
pub struct TextOutputParser {
    utf8: Utf8Decoder,
    spelled: SpelledAnswer,
}

/// An answer whose special tokens are found in its text.
struct SpelledAnswer {
    answer: AnswerParser,
    /// Finds special tokens and holds back the beginning of one.
    splitter: SpecialTokenSplitter,
}

impl TextOutputParser {
    /// A parser for one answer to `conversation`. `stop` are texts that end the visible answer,
    /// themselves left out.
    pub fn new(conversation: &Conversation, stop: &[String]) -> Self {
        Self {
            utf8: Utf8Decoder::default(),
            spelled: SpelledAnswer {
                answer: AnswerParser::new(conversation, stop, false),
                splitter: SpecialTokenSplitter::default(),
            },
        }
    }

    /// Takes text; appends the events that are certain.
    pub fn push(&mut self, text: &str, out: &mut Vec<ParsedEvent>) {
        let parser = &mut self.spelled;
        parser.answer.reserve(text.len());
        self.utf8.flush(|text| parser.text(text));
        parser.text(text);
        parser.answer.drain(out);
    }

    /// Takes bytes of text, which may end within a character.
    pub fn push_bytes(&mut self, bytes: &[u8], out: &mut Vec<ParsedEvent>) {
        let parser = &mut self.spelled;
        parser.answer.reserve(bytes.len());
        self.utf8.push(bytes, |text| parser.text(text));
        parser.answer.drain(out);
    }

    /// The answer ended; emits what was held back. `complete` when it was not cut.
    pub fn finish(&mut self, complete: bool, out: &mut Vec<ParsedEvent>) {
        let parser = &mut self.spelled;
        self.utf8.flush(|text| parser.text(text));
        parser.answer.finish(complete, parser.splitter.take());
        parser.answer.drain(out);
    }

    /// Whether the answer is over: further input is ignored.
    pub fn is_done(&self) -> bool {
        self.spelled.answer.is_done()
    }
}

impl SpelledAnswer {
    /// Splits text at special tokens.
    fn text(&mut self, text: &str) {
        let Self { answer, splitter } = self;
        splitter.split(text, |part| match part {
            TextPart::Text(text) => answer.text(text),
            TextPart::Special(token) => answer.special(token),
        });
    }
}
