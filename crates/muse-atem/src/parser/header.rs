//! Parses a message header: `<|start|>ROLE[ to=NAME]` up to its `<|message|>`.

use super::work_counter;
use crate::special_token::SpecialToken;

/// The longest recipient, in bytes, unless a declared name is longer.
const MAX_NAME: usize = 4096;

const ROLES: [&str; 5] = ["assistant", "user", "system", "tool", "developer"];

/// Text that may become a header. All of it is kept, so that it can be returned when it does not.
pub(super) struct HeaderParser {
    text: String,
    started: bool,
    stage: Stage,
    /// Offset of the recipient in `text`.
    name_at: usize,
    max_name: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// At the beginning: `<|start|>`, a recipient or `<|message|>` may follow.
    Open,
    /// Within a role.
    Role,
    /// After the space before a recipient; the number of bytes of `to=` that were read.
    To(usize),
    /// Within the recipient.
    Name,
    /// After `tool `.
    ToolName,
}

/// Who sends the message that a header begins.
pub(super) enum Sender {
    /// The assistant, to this recipient.
    Assistant(Option<String>),
    /// Another role, which ends the assistant's turn.
    Other,
}

impl HeaderParser {
    /// At the beginning of a header, with or without `<|start|>`.
    pub(super) fn expected(longest_name: usize) -> Self {
        Self {
            text: String::new(),
            started: false,
            stage: Stage::Open,
            name_at: 0,
            max_name: longest_name.max(MAX_NAME),
        }
    }

    /// After `<|start|>`.
    pub(super) fn started(longest_name: usize) -> Self {
        Self { started: true, stage: Stage::Role, ..Self::expected(longest_name) }
    }

    /// Whether nothing was read yet.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && !self.started
    }

    /// Bytes read so far, with `<|start|>` spelled.
    pub(super) fn len(&self) -> usize {
        self.text.len() + if self.started { SpecialToken::Start.text().len() } else { 0 }
    }

    /// Whether the text so far is part of a header rather than the beginning of an answer.
    pub(super) fn is_framing(&self) -> bool {
        self.started || matches!(self.stage, Stage::Name | Stage::To(3))
    }

    /// Takes `<|start|>`; returns false where it cannot stand.
    pub(super) fn start(&mut self) -> bool {
        if !self.is_empty() {
            return false;
        }
        self.started = true;
        self.stage = Stage::Role;
        true
    }

    /// Takes the text that can belong to a header and returns its length. Less than all of `text`
    /// means that this is not a header.
    pub(super) fn take(&mut self, text: &str) -> usize {
        for (at, character) in text.char_indices() {
            work_counter::add(character.len_utf8());
            match self.next(character) {
                Some(stage) => self.stage = stage,
                None => return at,
            }
            self.text.push(character);
            if character == '=' && self.stage == Stage::To(3) {
                self.name_at = self.text.len();
            }
        }
        text.len()
    }

    fn next(&self, character: char) -> Option<Stage> {
        let name = |stage| {
            let fits = self.text.len() + character.len_utf8() <= self.name_at + self.max_name;
            (fits && !character.is_whitespace() && character != '<').then_some(stage)
        };
        match self.stage {
            Stage::Open => match character {
                ' ' => Some(Stage::To(0)),
                't' => Some(Stage::To(1)),
                _ => None,
            },
            Stage::Role if character == ' ' => match self.text.as_str() {
                "assistant" => Some(Stage::To(0)),
                "tool" => Some(Stage::ToolName),
                _ => None,
            },
            Stage::Role => {
                let grows = |role: &str| {
                    role.strip_prefix(&self.text).is_some_and(|rest| rest.starts_with(character))
                };
                ROLES.iter().any(|role| grows(role)).then_some(Stage::Role)
            }
            Stage::To(3) | Stage::Name => name(Stage::Name),
            Stage::To(count) => "to="
                .as_bytes()
                .get(count)
                .is_some_and(|expected| char::from(*expected) == character)
                .then_some(Stage::To(count + 1)),
            Stage::ToolName => name(Stage::ToolName),
        }
    }

    /// The sender when `<|message|>` follows here; `None` when this is not a header.
    pub(super) fn sender(&self) -> Option<Sender> {
        match self.stage {
            Stage::Open => Some(Sender::Assistant(None)),
            Stage::Role if self.text == "assistant" => Some(Sender::Assistant(None)),
            Stage::Role if ROLES.contains(&self.text.as_str()) => Some(Sender::Other),
            // A space before `<|message|>` is allowed, a partial `to=` is not.
            Stage::To(0) => Some(Sender::Assistant(None)),
            Stage::Name => Some(Sender::Assistant(Some(self.text[self.name_at..].to_owned()))),
            Stage::ToolName => Some(Sender::Other),
            Stage::Role | Stage::To(_) => None,
        }
    }

    /// Whether `<|start|>` was read, and the text after it.
    pub(super) fn into_parts(self) -> (bool, String) {
        (self.started, self.text)
    }

    /// Everything that was read, with special tokens spelled.
    pub(super) fn into_text(self) -> String {
        if self.started {
            format!("{}{}", SpecialToken::Start.text(), self.text)
        } else {
            self.text
        }
    }
}
