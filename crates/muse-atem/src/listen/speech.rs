//! Reasoning and answers: plain text that is passed on at once, but for what may be a header.

use super::header::{Header, Speaker};
use super::names::Declared;
use super::work;
use crate::mark::Mark;

/// White space that is waited out between a header and the call behind it, in bytes.
const MAX_BLANK: usize = 4096;

const LEAD: &str = " to=";
const OPENERS: [&str; 2] = ["<atem:function_calls>", "<atem:invoke"];

/// What is held back of a body.
#[derive(Default)]
pub(super) enum Hold {
    #[default]
    Nothing,
    /// So many bytes of ` to=`.
    Lead(usize),
    /// ` to=` and the beginning of a recipient.
    Name(String),
    /// ` to=NAME<|message|>` and what may become a call.
    Switch { name: String, behind: String, blank: usize },
    /// A start mark and what may become a header.
    Start(Header),
}

/// Who may be switched to without a start mark.
pub(super) struct Switches<'a> {
    pub(super) declared: &'a Declared,
    /// Also to `self` and `user`: only out of reasoning, and only by a real message mark.
    pub(super) channels: bool,
}

impl Switches<'_> {
    pub(super) fn any(&self) -> bool {
        self.channels || !self.declared.is_empty()
    }

    fn begins(&self, start: &str) -> bool {
        self.declared.begins_recipient(start)
            || (self.channels && ["self", "user"].iter().any(|name| name.starts_with(start)))
    }
}

/// What the text made of a hold.
pub(super) enum Step {
    /// All text is taken.
    Done,
    /// A call begins: the message goes to that recipient, its body begins with that text, and so
    /// many bytes were taken.
    Switched { name: String, body: String, taken: usize },
}

impl Hold {
    /// Takes body text; passes on to `speak` what can be nothing else.
    pub(super) fn take(
        &mut self,
        text: &str,
        to: &Switches<'_>,
        speak: &mut dyn FnMut(&str),
    ) -> Step {
        if !to.any() && matches!(self, Self::Nothing) {
            work::looked_at(text.len());
            speak_some(text, speak);
            return Step::Done;
        }
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let taken = match self {
                Self::Nothing => self.look(rest, speak),
                Self::Lead(_) => self.take_lead(rest, speak),
                Self::Name(_) => self.take_name(rest, to, speak),
                Self::Switch { .. } => {
                    let (taken, switched) = self.take_switch(rest, to, speak);
                    if let Some((name, body)) = switched {
                        return Step::Switched { name, body, taken: at + taken };
                    }
                    taken
                }
                Self::Start(_) => self.take_header(rest, to, speak),
            };
            work::looked_at(taken + 1);
            at += taken;
        }
        Step::Done
    }

    /// Passes text on up to what may lead to a recipient. These, too, give the bytes taken.
    fn look(&mut self, text: &str, speak: &mut dyn FnMut(&str)) -> usize {
        // The rarest letter of the lead finds it fastest.
        let mut from = 0;
        while let Some(place) = text[from..].find('=') {
            let end = from + place + 1;
            if text[..end].ends_with(LEAD) {
                speak_some(&text[..end - LEAD.len()], speak);
                *self = Self::Name(String::new());
                return end;
            }
            from = end;
        }
        let lead = tail_of(text, LEAD);
        speak_some(&text[..text.len() - lead], speak);
        if lead > 0 {
            *self = Self::Lead(lead);
        }
        text.len()
    }

    fn take_lead(&mut self, text: &str, speak: &mut dyn FnMut(&str)) -> usize {
        let Self::Lead(count) = self else { unreachable!("asked by the hold") };
        let due = &LEAD[*count..];
        let fits = text.bytes().zip(due.bytes()).take_while(|(byte, due)| byte == due).count();
        *count += fits;
        if *count == LEAD.len() {
            *self = Self::Name(String::new());
        } else if fits < text.len() {
            self.release(speak);
        }
        fits
    }

    fn take_name(&mut self, text: &str, to: &Switches<'_>, speak: &mut dyn FnMut(&str)) -> usize {
        let Self::Name(name) = self else { unreachable!("asked by the hold") };
        let letter = first(text);
        let length = name.len();
        name.push(letter);
        if to.begins(name) {
            return letter.len_utf8();
        }
        name.truncate(length);
        self.release(speak);
        0
    }

    /// Also gives the recipient and the beginning of the call, once there is one.
    fn take_switch(
        &mut self,
        text: &str,
        to: &Switches<'_>,
        speak: &mut dyn FnMut(&str),
    ) -> (usize, Option<(String, String)>) {
        let Self::Switch { name, behind, blank } = self else { unreachable!("asked by the hold") };
        let letter = first(text);
        let length = behind.len();
        behind.push(letter);
        if *blank == length && letter.is_ascii_whitespace() {
            *blank += 1;
        }
        match opens_call(&behind[*blank..], *blank) {
            Some(true) => {
                let call = (std::mem::take(name), std::mem::take(behind));
                *self = Self::Nothing;
                (letter.len_utf8(), Some(call))
            }
            None => (letter.len_utf8(), None),
            Some(false) => {
                behind.truncate(length);
                let behind = std::mem::take(behind);
                self.release(speak);
                // White space may end with the first letter of another ` to=`.
                self.take(&behind, to, speak);
                (0, None)
            }
        }
    }

    fn take_header(&mut self, text: &str, to: &Switches<'_>, speak: &mut dyn FnMut(&str)) -> usize {
        let Self::Start(header) = self else { unreachable!("asked by the hold") };
        let taken = header.take(text);
        if taken < text.len() {
            let Self::Start(header) = std::mem::take(self) else { unreachable!("just asked") };
            let (_, held) = header.give_back();
            speak(Mark::Start.text());
            self.take(&held, to, speak);
        }
        taken
    }

    /// Passes on what is held, as text.
    pub(super) fn release(&mut self, speak: &mut dyn FnMut(&str)) {
        match std::mem::take(self) {
            Self::Nothing => {}
            Self::Lead(count) => speak(&LEAD[..count]),
            Self::Name(name) => {
                speak(LEAD);
                speak_some(&name, speak);
            }
            Self::Switch { name, behind, .. } => {
                speak(&format!("{LEAD}{name}{}", Mark::Message.text()));
                speak_some(&behind, speak);
            }
            Self::Start(header) => speak(&header.spelled()),
        }
    }

    /// Whether it waits behind a start mark, and what a message mark makes of that.
    pub(super) fn speaker(&self) -> Option<Speaker> {
        match self {
            Self::Start(header) => header.speaker(),
            _ => None,
        }
    }

    /// Whether it is the unfinished header of a message.
    pub(super) fn is_header(&self) -> bool {
        matches!(self, Self::Start(_) | Self::Switch { .. })
    }
}

fn first(text: &str) -> char {
    text.chars().next().expect("the text is not empty")
}

fn speak_some(text: &str, speak: &mut dyn FnMut(&str)) {
    if !text.is_empty() {
        speak(text);
    }
}

/// Bytes at the end of `text` that `word` begins with, fewer than all of it.
fn tail_of(text: &str, word: &str) -> usize {
    (1..word.len()).rev().find(|&count| text.ends_with(&word[..count])).unwrap_or(0)
}

/// Whether `tag`, behind a header and `blank` bytes of white space, opens a call; `None` while that
/// is open.
fn opens_call(tag: &str, blank: usize) -> Option<bool> {
    if tag.is_empty() {
        return (blank > MAX_BLANK).then_some(false);
    }
    if OPENERS.iter().any(|opener| tag.starts_with(opener)) {
        return Some(true);
    }
    if OPENERS.iter().any(|opener| opener.starts_with(tag)) { None } else { Some(false) }
}
