//! A header while it comes in: `<|start|>ROLE[ to=NAME]` up to its `<|message|>`.

use super::work;
use crate::mark::Mark;

/// Longest recipient that is waited for when no declared name is longer, in bytes.
const MAX_NAME: usize = 4096;

const ROLES: [&str; 5] = ["assistant", "user", "system", "tool", "developer"];

/// What may become a header. Everything it took is kept, to be given back when it does not.
pub(super) struct Header {
    text: String,
    started: bool,
    stage: Stage,
    /// Where the recipient begins in `text`.
    name_at: usize,
    max_name: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// Behind the prompt's or a message's end: a start mark, a recipient or a message mark.
    Open,
    /// Within a role.
    Role,
    /// Behind ` ` of a recipient: that many letters of `to=` are there.
    To(usize),
    /// Within the recipient.
    Name,
    /// Behind `tool `.
    ToolName,
}

/// Who speaks in the body behind a header.
pub(super) enum Speaker {
    /// The assistant, to a recipient.
    Assistant(Option<String>),
    /// Someone else, which ends the turn.
    Other,
}

impl Header {
    /// Where a header is due, with the start mark or without.
    pub(super) fn due(longest_name: usize) -> Self {
        Self {
            text: String::new(),
            started: false,
            stage: Stage::Open,
            name_at: 0,
            max_name: longest_name.max(MAX_NAME),
        }
    }

    /// Behind a start mark.
    pub(super) fn started(longest_name: usize) -> Self {
        Self { started: true, stage: Stage::Role, ..Self::due(longest_name) }
    }

    /// Whether nothing came yet.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && !self.started
    }

    /// Whether what came is framing rather than the beginning of an answer.
    pub(super) fn is_framing(&self) -> bool {
        self.started || matches!(self.stage, Stage::Name | Stage::To(3))
    }

    /// Takes a start mark; false when there is no place for one.
    pub(super) fn start(&mut self) -> bool {
        if !self.is_empty() {
            return false;
        }
        self.started = true;
        self.stage = Stage::Role;
        true
    }

    /// Takes the text that can belong to a header and gives its length. Less than all means that
    /// this is no header.
    pub(super) fn take(&mut self, text: &str) -> usize {
        for (at, letter) in text.char_indices() {
            work::looked_at(letter.len_utf8());
            match self.next(letter) {
                Some(stage) => self.stage = stage,
                None => return at,
            }
            self.text.push(letter);
            if letter == '=' && self.stage == Stage::To(3) {
                self.name_at = self.text.len();
            }
        }
        text.len()
    }

    fn next(&self, letter: char) -> Option<Stage> {
        let name = |stage| {
            let room = self.text.len() + letter.len_utf8() <= self.name_at + self.max_name;
            (room && !letter.is_whitespace() && letter != '<').then_some(stage)
        };
        match self.stage {
            Stage::Open => match letter {
                ' ' => Some(Stage::To(0)),
                't' => Some(Stage::To(1)),
                _ => None,
            },
            Stage::Role if letter == ' ' => match self.text.as_str() {
                "assistant" => Some(Stage::To(0)),
                "tool" => Some(Stage::ToolName),
                _ => None,
            },
            Stage::Role => {
                let grows = |role: &str| {
                    role.strip_prefix(&self.text).is_some_and(|rest| rest.starts_with(letter))
                };
                ROLES.iter().any(|role| grows(role)).then_some(Stage::Role)
            }
            Stage::To(3) | Stage::Name => name(Stage::Name),
            Stage::To(count) => "to="
                .as_bytes()
                .get(count)
                .is_some_and(|due| char::from(*due) == letter)
                .then_some(Stage::To(count + 1)),
            Stage::ToolName => name(Stage::ToolName),
        }
    }

    /// What a message mark here makes of it; `None` when this is no header.
    pub(super) fn speaker(&self) -> Option<Speaker> {
        match self.stage {
            Stage::Open => Some(Speaker::Assistant(None)),
            Stage::Role if self.text == "assistant" => Some(Speaker::Assistant(None)),
            Stage::Role if ROLES.contains(&self.text.as_str()) => Some(Speaker::Other),
            // A blank before the mark is part of the grammar, half a `to=` is not.
            Stage::To(0) => Some(Speaker::Assistant(None)),
            Stage::Name => Some(Speaker::Assistant(Some(self.text[self.name_at..].to_owned()))),
            Stage::ToolName => Some(Speaker::Other),
            Stage::Role | Stage::To(_) => None,
        }
    }

    /// The text it took, and whether a start mark was before it.
    pub(super) fn give_back(self) -> (bool, String) {
        (self.started, self.text)
    }

    /// All it took, spelled.
    pub(super) fn spelled(self) -> String {
        if self.started { format!("{}{}", Mark::Start.text(), self.text) } else { self.text }
    }
}
