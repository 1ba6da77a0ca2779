//! Hears an answer: what is reasoning, what is said, what is called. Nothing is ever taken back,
//! and any split of the input gives the same.

mod block;
mod growth;
mod header;
mod id;
mod names;
mod schema;
mod speech;
mod stop;
mod tag;
mod turn;
mod utf8;
mod voice;
mod work;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use muse_core::contract::{Channel, Conversation, Heard, Listener, Token, Tokenizer};

use crate::mark::Mark;
use turn::Turn;
use utf8::Letters;

/// Hears an answer from its tokens: marks are tokens, the same letters are text.
pub struct TokenListener {
    tokenizer: Arc<dyn Tokenizer>,
    marks: HashMap<Token, Mark>,
    turn: Turn,
    letters: Letters,
    /// Bytes of the token that is heard.
    bytes: Vec<u8>,
    channel: Channel,
}

impl TokenListener {
    /// A listener for one answer to `conversation`; see
    /// [`muse_core::contract::PromptTemplate::listener`].
    pub fn new(
        conversation: &Conversation,
        stop: &[String],
        tokenizer: Arc<dyn Tokenizer>,
    ) -> Self {
        let marks = Mark::ALL
            .into_iter()
            .filter_map(|mark| Some((tokenizer.control(mark.text())?, mark)))
            .collect();
        Self {
            tokenizer,
            marks,
            turn: Turn::new(conversation, stop, true),
            letters: Letters::default(),
            bytes: Vec::new(),
            channel: Channel::Frame,
        }
    }
}

impl Listener for TokenListener {
    fn hear(&mut self, token: Token, out: &mut Vec<Heard>) {
        let turn = &mut self.turn;
        match self.marks.get(&token) {
            Some(&mark) => {
                self.letters.flush(|text| turn.text(text));
                turn.mark(mark);
                self.channel = Channel::Frame;
            }
            None => {
                self.bytes.clear();
                self.tokenizer.decode(token, &mut self.bytes);
                self.letters.take(&self.bytes, |text| turn.text(text));
                self.channel = turn.channel();
            }
        }
        turn.drain(out);
    }

    fn finish(&mut self, complete: bool, out: &mut Vec<Heard>) {
        let turn = &mut self.turn;
        self.letters.flush(|text| turn.text(text));
        turn.finish(complete, "");
        turn.drain(out);
    }

    fn channel(&self) -> Channel {
        self.channel
    }
}

/// Hears an answer from text in which marks are letters, as another engine streams it. Letters
/// that spell a mark are structure where a mark can be.
pub struct TextListener {
    turn: Turn,
    letters: Letters,
    /// The beginning of what may become a mark.
    held: String,
}

impl TextListener {
    /// A listener for one answer to `conversation`. `stop` are texts that end the visible answer,
    /// themselves left out.
    pub fn new(conversation: &Conversation, stop: &[String]) -> Self {
        Self {
            turn: Turn::new(conversation, stop, false),
            letters: Letters::default(),
            held: String::new(),
        }
    }

    /// Takes text; appends what can be said for certain.
    pub fn hear(&mut self, text: &str, out: &mut Vec<Heard>) {
        self.end_letter();
        self.turn_text(text);
        self.turn.drain(out);
    }

    /// Takes bytes of text, which need not end with a whole letter.
    pub fn hear_bytes(&mut self, bytes: &[u8], out: &mut Vec<Heard>) {
        let mut letters = std::mem::take(&mut self.letters);
        letters.take(bytes, |text| self.turn_text(text));
        self.letters = letters;
        self.turn.drain(out);
    }

    /// The answer ended; settles what was held. `complete` when it was not cut.
    pub fn finish(&mut self, complete: bool, out: &mut Vec<Heard>) {
        self.end_letter();
        let held = std::mem::take(&mut self.held);
        self.turn.finish(complete, &held);
        self.turn.drain(out);
    }

    /// Whether the turn is over: what comes now is ignored.
    pub fn is_over(&self) -> bool {
        self.turn.is_over()
    }

    /// No more bytes belong to the letter that began.
    fn end_letter(&mut self) {
        let mut letters = std::mem::take(&mut self.letters);
        letters.flush(|text| self.turn_text(text));
    }

    /// Cuts text at marks.
    fn turn_text(&mut self, text: &str) {
        let joined;
        let mut rest = text;
        if !self.held.is_empty() {
            self.held.push_str(text);
            joined = std::mem::take(&mut self.held);
            rest = &joined;
        }
        while let Some(at) = rest.find('<') {
            work::looked_at(at + 1);
            let candidate = &rest[at..];
            if let Some(mark) = Mark::ALL.into_iter().find(|m| candidate.starts_with(m.text())) {
                self.turn.text(&rest[..at]);
                self.turn.mark(mark);
                rest = &candidate[mark.text().len()..];
            } else if Mark::ALL.iter().any(|mark| mark.text().starts_with(candidate)) {
                self.turn.text(&rest[..at]);
                self.held.push_str(candidate);
                return;
            } else {
                self.turn.text(&rest[..=at]);
                rest = &candidate[1..];
            }
        }
        work::looked_at(rest.len());
        self.turn.text(rest);
    }
}
