//! Builds the parts of a prompt.

use muse_core::contract::{Part, PromptPart};

use crate::special_token::SpecialToken;

/// A prompt under construction; adjacent texts are joined, as the tokenizer must see them.
#[derive(Default)]
pub(super) struct PromptBuilder {
    pub(super) parts: Vec<PromptPart>,
    images: usize,
    videos: usize,
}

impl PromptBuilder {
    pub(super) fn text(&mut self, text: &str) {
        match self.parts.last_mut() {
            Some(PromptPart::Text(last)) => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.parts.push(PromptPart::Text(text.to_owned())),
        }
    }

    pub(super) fn special(&mut self, token: SpecialToken) {
        self.parts.push(PromptPart::Special(token.text()));
    }

    /// `<|start|>ROLE<|message|>`
    pub(super) fn header(&mut self, role: &str) {
        self.special(SpecialToken::Start);
        self.text(role);
        self.special(SpecialToken::Message);
    }

    /// `<|start|>assistant to=NAME<|message|>`
    pub(super) fn assistant(&mut self, recipient: &str) {
        self.header(&format!("assistant to={recipient}"));
    }

    pub(super) fn content(&mut self, parts: &[Part]) {
        for part in parts {
            match part {
                Part::Text(text) => self.text(text),
                Part::Image => {
                    self.parts.push(PromptPart::Image(self.images));
                    self.images += 1;
                }
                Part::Video => {
                    self.parts.push(PromptPart::Video(self.videos));
                    self.videos += 1;
                }
            }
        }
    }
}
