//! Hears an answer: what is reasoning, what is said, what is called. Nothing is ever taken back,
//! and any split of the input gives the same.

mod block;
mod growth;
mod header;
mod id;
mod letters;
mod marks;
mod names;
mod schema;
mod speech;
mod stop;
mod tag;
mod turn;
mod voice;
mod work;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use muse_core::contract::{Channel, Conversation, OutputParser, ParsedEvent, Token, Tokenizer};

use crate::mark::Mark;
use letters::Letters;
use marks::{Held, Split};
use turn::Turn;

/// Hears an answer from its tokens: marks are tokens, the same letters are text.
pub struct TokenOutputParser {
    tokenizer: Arc<dyn Tokenizer>,
    /// The few tokens that are marks: a list is found through faster than a table.
    marks: Vec<(Token, Mark)>,
    turn: Turn,
    letters: Letters,
    /// Bytes of the token that is heard.
    bytes: Vec<u8>,
    channel: Channel,
}

impl TokenOutputParser {
    /// A listener for one answer to `conversation`; see
    /// [`muse_core::contract::PromptTemplate::listener`].
    pub fn new(
        conversation: &Conversation,
        stop: &[String],
        tokenizer: Arc<dyn Tokenizer>,
    ) -> Self {
        let marks = Mark::ALL
            .into_iter()
            .filter_map(|mark| Some((tokenizer.special_token(mark.text())?, mark)))
            .collect();
        Self {
            tokenizer,
            marks,
            turn: Turn::new(conversation, stop, true),
            letters: Letters::default(),
            bytes: Vec::new(),
            channel: Channel::Protocol,
        }
    }
}

impl OutputParser for TokenOutputParser {
    fn push(&mut self, token: Token, out: &mut Vec<ParsedEvent>) {
        let turn = &mut self.turn;
        match self.marks.iter().find(|(id, _)| *id == token) {
            Some(&(_, mark)) => {
                self.letters.flush(|text| turn.text(text));
                turn.mark(mark);
                self.channel = Channel::Protocol;
            }
            None => {
                self.bytes.clear();
                self.tokenizer.decode(token, &mut self.bytes);
                turn.expect(self.bytes.len());
                self.letters.take(&self.bytes, |text| turn.text(text));
                self.channel = turn.channel();
            }
        }
        turn.drain(out);
    }

    fn finish(&mut self, complete: bool, out: &mut Vec<ParsedEvent>) {
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
pub struct TextOutputParser {
    letters: Letters,
    marked: Marked,
}

/// A turn whose marks are found in its text.
struct Marked {
    turn: Turn,
    /// The beginning of what may become a mark.
    held: Held,
}

impl TextOutputParser {
    /// A listener for one answer to `conversation`. `stop` are texts that end the visible answer,
    /// themselves left out.
    pub fn new(conversation: &Conversation, stop: &[String]) -> Self {
        Self {
            letters: Letters::default(),
            marked: Marked { turn: Turn::new(conversation, stop, false), held: Held::default() },
        }
    }

    /// Takes text; appends what can be said for certain.
    pub fn push(&mut self, text: &str, out: &mut Vec<ParsedEvent>) {
        let marked = &mut self.marked;
        marked.turn.expect(text.len());
        self.letters.flush(|text| marked.text(text));
        marked.text(text);
        marked.turn.drain(out);
    }

    /// Takes bytes of text, which need not end with a whole letter.
    pub fn hear_bytes(&mut self, bytes: &[u8], out: &mut Vec<ParsedEvent>) {
        let marked = &mut self.marked;
        marked.turn.expect(bytes.len());
        self.letters.take(bytes, |text| marked.text(text));
        marked.turn.drain(out);
    }

    /// The answer ended; settles what was held. `complete` when it was not cut.
    pub fn finish(&mut self, complete: bool, out: &mut Vec<ParsedEvent>) {
        let marked = &mut self.marked;
        self.letters.flush(|text| marked.text(text));
        marked.turn.finish(complete, marked.held.take());
        marked.turn.drain(out);
    }

    /// Whether the turn is over: what comes now is ignored.
    pub fn is_over(&self) -> bool {
        self.marked.turn.is_over()
    }
}

impl Marked {
    /// Cuts text at marks.
    fn text(&mut self, text: &str) {
        let Self { turn, held } = self;
        held.split(text, |part| match part {
            Split::Text(text) => turn.text(text),
            Split::Mark(mark) => turn.mark(mark),
        });
    }
}
