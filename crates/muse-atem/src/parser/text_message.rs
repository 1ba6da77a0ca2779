//! Reasoning and answers: text that is passed on at once, except what may become a header.

use super::header::{HeaderParser, Sender};
use super::tools::DeclaredTools;
use super::work_counter;
use crate::special_token::SpecialToken;

/// The most white space, in bytes, between a header without `<|start|>` and its call.
const MAX_BLANK: usize = 4096;

const TO_PREFIX: &str = " to=";
const OPENERS: [&str; 2] = ["<atem:function_calls>", "<atem:invoke"];

/// Text that is held back.
#[derive(Default)]
pub(super) enum HeldText {
    #[default]
    Nothing,
    /// This many bytes of ` to=`.
    Prefix(usize),
    /// ` to=` and the beginning of a recipient.
    Name(String),
    /// ` to=NAME<|message|>` and what may become a call.
    Switch { name: String, after: String, blank: usize },
    /// `<|start|>` and what may become a header.
    Start(HeaderParser),
}

/// Which recipients a message may switch to without `<|start|>`.
pub(super) struct RecipientSwitch<'a> {
    pub(super) declared: &'a DeclaredTools,
    /// Also to `self` and `user`: only out of reasoning, and only with a real `<|message|>` token.
    pub(super) channels: bool,
}

impl RecipientSwitch<'_> {
    pub(super) fn any(&self) -> bool {
        self.channels || !self.declared.is_empty()
    }

    fn begins(&self, start: &str) -> bool {
        self.declared.begins_recipient(start)
            || (self.channels && ["self", "user"].iter().any(|name| name.starts_with(start)))
    }
}

/// The result of [`HeldText::take`].
pub(super) enum TextStep {
    /// All text was taken.
    Done,
    /// A call begins after `taken` bytes: a message to `name` whose text so far is `body`.
    Switched { name: String, body: String, taken: usize },
}

impl HeldText {
    /// Takes text of a message; emits what cannot belong to a header.
    pub(super) fn take(
        &mut self,
        text: &str,
        to: &RecipientSwitch<'_>,
        emit: &mut dyn FnMut(&str),
    ) -> TextStep {
        if !to.any() && matches!(self, Self::Nothing) {
            work_counter::add(text.len());
            emit_text(text, emit);
            return TextStep::Done;
        }
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let taken = match self {
                Self::Nothing => self.find_prefix(rest, emit),
                Self::Prefix(_) => self.take_prefix(rest, emit),
                Self::Name(_) => self.take_name(rest, to, emit),
                Self::Switch { .. } => {
                    let (taken, switched) = self.take_switch(rest, to, emit);
                    if let Some((name, body)) = switched {
                        return TextStep::Switched { name, body, taken: at + taken };
                    }
                    taken
                }
                Self::Start(_) => self.take_header(rest, to, emit),
            };
            work_counter::add(taken + 1);
            at += taken;
        }
        TextStep::Done
    }

    /// Emits text up to what may become ` to=`. This and the following functions return the number
    /// of bytes taken.
    fn find_prefix(&mut self, text: &str, emit: &mut dyn FnMut(&str)) -> usize {
        // `=` is the rarest character of the prefix, so searching for it is fastest.
        let mut from = 0;
        while let Some(position) = text[from..].find('=') {
            let end = from + position + 1;
            if text[..end].ends_with(TO_PREFIX) {
                emit_text(&text[..end - TO_PREFIX.len()], emit);
                *self = Self::Name(String::new());
                return end;
            }
            from = end;
        }
        let prefix = longest_suffix_of(text, TO_PREFIX);
        emit_text(&text[..text.len() - prefix], emit);
        if prefix > 0 {
            *self = Self::Prefix(prefix);
        }
        text.len()
    }

    fn take_prefix(&mut self, text: &str, emit: &mut dyn FnMut(&str)) -> usize {
        let Self::Prefix(count) = self else { unreachable!("the caller matched the variant") };
        let expected = &TO_PREFIX[*count..];
        let fits = text
            .bytes()
            .zip(expected.bytes())
            .take_while(|(byte, expected)| byte == expected)
            .count();
        *count += fits;
        if *count == TO_PREFIX.len() {
            *self = Self::Name(String::new());
        } else if fits < text.len() {
            self.release(emit);
        }
        fits
    }

    fn take_name(
        &mut self,
        text: &str,
        to: &RecipientSwitch<'_>,
        emit: &mut dyn FnMut(&str),
    ) -> usize {
        let Self::Name(name) = self else { unreachable!("the caller matched the variant") };
        let character = first(text);
        let length = name.len();
        name.push(character);
        if to.begins(name) {
            return character.len_utf8();
        }
        name.truncate(length);
        self.release(emit);
        0
    }

    /// Also returns the recipient and the beginning of the call, once there is one.
    fn take_switch(
        &mut self,
        text: &str,
        to: &RecipientSwitch<'_>,
        emit: &mut dyn FnMut(&str),
    ) -> (usize, Option<(String, String)>) {
        let Self::Switch { name, after, blank } = self else {
            unreachable!("the caller matched the variant")
        };
        let character = first(text);
        let length = after.len();
        after.push(character);
        if *blank == length && character.is_ascii_whitespace() {
            *blank += 1;
        }
        match opens_call(&after[*blank..], *blank) {
            Some(true) => {
                let call = (std::mem::take(name), std::mem::take(after));
                *self = Self::Nothing;
                (character.len_utf8(), Some(call))
            }
            None => (character.len_utf8(), None),
            Some(false) => {
                after.truncate(length);
                let after = std::mem::take(after);
                self.release(emit);
                // The white space may end with the first character of another ` to=`.
                self.take(&after, to, emit);
                (0, None)
            }
        }
    }

    fn take_header(
        &mut self,
        text: &str,
        to: &RecipientSwitch<'_>,
        emit: &mut dyn FnMut(&str),
    ) -> usize {
        let Self::Start(header) = self else { unreachable!("the caller matched the variant") };
        let taken = header.take(text);
        if taken < text.len() {
            let Self::Start(header) = std::mem::take(self) else { unreachable!("matched above") };
            let (_, held) = header.into_parts();
            emit(SpecialToken::Start.text());
            self.take(&held, to, emit);
        }
        taken
    }

    /// Emits what is held back, as text.
    pub(super) fn release(&mut self, emit: &mut dyn FnMut(&str)) {
        match std::mem::take(self) {
            Self::Nothing => {}
            Self::Prefix(count) => emit(&TO_PREFIX[..count]),
            Self::Name(name) => {
                emit(TO_PREFIX);
                emit_text(&name, emit);
            }
            Self::Switch { name, after, .. } => {
                emit(&format!("{TO_PREFIX}{name}{}", SpecialToken::Message.text()));
                emit_text(&after, emit);
            }
            Self::Start(header) => emit(&header.into_text()),
        }
    }

    /// The sender, when `<|start|>` is held back and `<|message|>` follows now.
    pub(super) fn sender(&self) -> Option<Sender> {
        match self {
            Self::Start(header) => header.sender(),
            _ => None,
        }
    }

    /// Whether the unfinished header of a message is held back.
    pub(super) fn is_header(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Switch { .. })
    }
}

fn first(text: &str) -> char {
    text.chars().next().expect("the text is not empty")
}

fn emit_text(text: &str, emit: &mut dyn FnMut(&str)) {
    if !text.is_empty() {
        emit(text);
    }
}

/// The length of the longest proper prefix of `word` that `text` ends with.
fn longest_suffix_of(text: &str, word: &str) -> usize {
    (1..word.len()).rev().find(|&count| text.ends_with(&word[..count])).unwrap_or(0)
}

/// Whether `tag`, after a header and `blank` bytes of white space, opens a call; `None` while
/// undecided.
fn opens_call(tag: &str, blank: usize) -> Option<bool> {
    if tag.is_empty() {
        return (blank > MAX_BLANK).then_some(false);
    }
    if OPENERS.iter().any(|opener| tag.starts_with(opener)) {
        return Some(true);
    }
    if OPENERS.iter().any(|opener| opener.starts_with(tag)) { None } else { Some(false) }
}
