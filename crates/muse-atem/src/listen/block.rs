//! The body of a message to a tool: which calls it holds. Reads the text once, as it comes.
//!
//! Values are opaque: a closing tag ends a value only when what follows it can follow a value. A
//! closer is weighed while its continuation comes in; when that does not fit, it was part of the
//! value. A block followed by prose is taken for good only when no other closer could be meant.

use std::ops::Range;

use super::names::Declared;
use super::tag::{Found, Tag, Tags};
use super::work;

/// A call as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invoke {
    /// Which opener of the body it began with; broken ones are counted too.
    pub(super) serial: usize,
    pub(super) name: String,
    /// Names of parameters and where their values are in the body.
    pub(super) parameters: Vec<(String, Range<usize>)>,
}

/// A body while it comes in.
pub(super) struct Block {
    text: String,
    /// Bytes that were looked at.
    at: usize,
    tags: Tags,
    state: State,
    /// The invoke that is open, its last value not yet in its list.
    open: Option<Invoke>,
    value: Value,
    done: Vec<Invoke>,
    opened: usize,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Outside of invokes.
    Free,
    /// In an invoke, between parameters.
    Invoke,
    /// In a value.
    Value,
    /// Behind a closer of a parameter that may have ended the value; and further behind the closer
    /// of its invoke, and of the block.
    AfterValue,
    AfterInvoke,
    AfterBlock,
    /// In an invoke that cannot be read; and behind a closer that may have ended it.
    Broken,
    AfterBroken,
}

/// The value that is open.
#[derive(Default)]
struct Value {
    key: String,
    start: usize,
    /// Where the closer that is weighed begins.
    end: usize,
    /// Openers of parameters within the value whose closer has not come: a quoted call.
    quoted: usize,
    /// End of the value if the message ends here or a new call begins: its closer was followed by
    /// the closers of invoke or block and then by prose.
    doubtful: Option<usize>,
    /// Nothing but white space came, behind a name that was glued to its invoke's.
    glued: bool,
}

/// Whether the body is nothing but one well-formed block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Empty,
    Opened,
    Closed,
    Broken,
}

/// To whom the message is: decides what a glued parameter name may mean.
pub(super) struct Addressee<'a> {
    pub(super) declared: &'a Declared,
    pub(super) recipient: Option<&'a str>,
}

impl Addressee<'_> {
    /// `T.P` as tool and parameter, when the message is to T and P is a parameter of it.
    fn glued(&self, name: &str) -> Option<(String, String)> {
        let tool = self.recipient.filter(|tool| name.starts_with(*tool))?;
        let parameter = name[tool.len()..].strip_prefix('.')?;
        let schema = self.declared.schema(tool)?;
        let known = self.declared.resolve(name).is_none()
            && schema.member("properties")?.member(parameter).is_some();
        known.then(|| (tool.to_owned(), parameter.to_owned()))
    }
}

impl Block {
    pub(super) fn new(longest_name: usize) -> Self {
        Self {
            text: String::new(),
            at: 0,
            tags: Tags::new(longest_name),
            state: State::Free,
            open: None,
            value: Value::default(),
            done: Vec::new(),
            opened: 0,
            shape: Shape::Empty,
        }
    }

    /// The body so far.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a mark that comes now would be inside a value.
    pub(super) fn is_in_value(&self) -> bool {
        matches!(self.state, State::Value | State::AfterValue)
    }

    /// Whether the body can no longer be nothing but one well-formed block of declared calls.
    pub(super) fn is_prose(&self) -> bool {
        self.shape == Shape::Broken
    }

    /// The calls that are whole.
    pub(super) fn done(&self) -> &[Invoke] {
        &self.done
    }

    /// The call that is open, and of its open value the name and what is certain of the text.
    pub(super) fn open(&self) -> Option<(&Invoke, Option<(&str, &str)>)> {
        let open = self.open.as_ref()?;
        let end = match self.state {
            State::Value => self.value.doubtful.unwrap_or(self.at),
            State::AfterValue | State::AfterInvoke | State::AfterBlock => self.value.end,
            _ => return Some((open, None)),
        };
        let sure = if self.value.glued { "" } else { &self.text[self.value.start..end] };
        Some((open, Some((self.value.key.as_str(), sure))))
    }

    /// Takes more of the body.
    pub(super) fn take(&mut self, text: &str, to: &Addressee<'_>) {
        self.text.push_str(text);
        while self.at < self.text.len() {
            let rest = &self.text[self.at..];
            let plain = rest.find('<').unwrap_or(rest.len());
            work::looked_at(plain);
            if plain > 0 {
                let blank = rest[..plain].bytes().all(|byte| byte.is_ascii_whitespace());
                if !blank {
                    self.prose();
                }
                self.at += plain;
                continue;
            }
            match self.tags.find(rest) {
                Found::Partial => return,
                Found::Text => {
                    self.prose();
                    self.at += 1;
                }
                Found::Tag(tag, length) => {
                    let start = self.at;
                    self.at += length;
                    self.tag(tag, start, to);
                }
            }
        }
    }

    /// The calls, when the body ends here. `finished` when the message ended rather than was cut.
    /// Also says whether the body is one well-formed block and nothing else.
    pub(super) fn end(&mut self, finished: bool) -> (Vec<Invoke>, bool) {
        match self.state {
            State::AfterInvoke => self.close_invoke(),
            State::AfterBlock => {
                self.close_invoke();
                self.close_block();
            }
            State::Value | State::AfterValue if finished && self.value.doubtful.is_some() => {
                self.settle_doubt();
            }
            State::Free => {}
            _ => self.shape = Shape::Broken,
        }
        if self.at < self.text.len() {
            self.shape = Shape::Broken;
        }
        let pure = matches!(self.shape, Shape::Opened | Shape::Closed) && !self.done.is_empty();
        (std::mem::take(&mut self.done), pure)
    }

    /// Text other than white space that is no tag.
    fn prose(&mut self) {
        match self.state {
            State::Free => self.shape = Shape::Broken,
            State::Invoke => self.breaks(),
            State::Value | State::Broken => {}
            State::AfterValue => self.refute(false),
            State::AfterInvoke | State::AfterBlock => self.refute(true),
            State::AfterBroken => self.state = State::Broken,
        }
    }

    fn tag(&mut self, tag: Tag, start: usize, to: &Addressee<'_>) {
        match self.state {
            State::Free => self.tag_free(tag, to),
            State::Invoke => match tag {
                Tag::OpenParameter(key) => self.open_value(key),
                Tag::CloseInvoke => self.finish_invoke(),
                Tag::OpenInvoke(_) => {
                    self.shape = Shape::Broken;
                    self.open = None;
                    self.tag_free(tag, to);
                }
                _ => self.breaks(),
            },
            State::Value => self.tag_in_value(tag, start, to),
            State::AfterValue => match tag {
                Tag::OpenParameter(key) => {
                    self.close_value();
                    self.open_value(key);
                }
                Tag::CloseInvoke => self.state = State::AfterInvoke,
                tag => self.refute_by(tag, start, to),
            },
            State::AfterInvoke => match tag {
                Tag::OpenInvoke(_) | Tag::OpenBlock => {
                    self.close_invoke();
                    self.tag_free(tag, to);
                }
                Tag::CloseBlock => self.state = State::AfterBlock,
                tag => self.refute_by(tag, start, to),
            },
            State::AfterBlock => match tag {
                Tag::OpenInvoke(_) | Tag::OpenBlock => {
                    self.close_invoke();
                    self.close_block();
                    self.tag_free(tag, to);
                }
                tag => self.refute_by(tag, start, to),
            },
            State::Broken => {
                if tag == Tag::CloseInvoke {
                    self.state = State::AfterBroken;
                }
            }
            State::AfterBroken => match tag {
                Tag::OpenInvoke(_) | Tag::OpenBlock | Tag::CloseBlock => {
                    self.state = State::Free;
                    self.tag_free(tag, to);
                }
                Tag::CloseInvoke => {}
                _ => self.state = State::Broken,
            },
        }
    }

    fn tag_free(&mut self, tag: Tag, to: &Addressee<'_>) {
        match tag {
            Tag::OpenBlock => {
                let first = self.shape == Shape::Empty && self.done.is_empty();
                self.shape = if first { Shape::Opened } else { Shape::Broken };
                self.state = State::Free;
            }
            Tag::CloseBlock => self.close_block(),
            Tag::OpenInvoke(name) => self.open_invoke(name, to),
            Tag::BadInvoke => self.breaks(),
            Tag::CloseInvoke | Tag::OpenParameter(_) | Tag::CloseParameter => {
                self.shape = Shape::Broken;
            }
        }
    }

    fn open_invoke(&mut self, name: String, to: &Addressee<'_>) {
        match self.shape {
            Shape::Empty if self.done.is_empty() => self.shape = Shape::Opened,
            Shape::Opened => {}
            _ => self.shape = Shape::Broken,
        }
        if to.declared.resolve(&name).is_none() {
            self.shape = Shape::Broken;
        }
        self.opened += 1;
        let opened = |name| Invoke { serial: self.opened, name, parameters: Vec::new() };
        match to.glued(&name) {
            Some((tool, parameter)) => {
                self.open = Some(opened(tool));
                self.open_value(parameter);
                self.value.glued = true;
            }
            None => {
                self.open = Some(opened(name));
                self.state = State::Invoke;
            }
        }
    }

    fn tag_in_value(&mut self, tag: Tag, start: usize, to: &Addressee<'_>) {
        if std::mem::take(&mut self.value.glued)
            && matches!(tag, Tag::OpenParameter(_) | Tag::CloseInvoke)
            && self.text[self.value.start..start].trim().is_empty()
        {
            self.breaks();
            return;
        }
        match tag {
            Tag::CloseParameter => {
                self.value.doubtful = None;
                self.value.end = start;
                self.state = State::AfterValue;
            }
            Tag::OpenParameter(_) => {
                self.value.doubtful = None;
                self.value.quoted += 1;
            }
            Tag::CloseInvoke => self.value.doubtful = None,
            Tag::OpenInvoke(_) if self.value.doubtful.is_some() => {
                self.settle_doubt();
                self.tag_free(tag, to);
            }
            _ => {}
        }
    }

    /// The closer that is weighed was part of the value. `prose` when plain text says so.
    fn refute(&mut self, prose: bool) {
        self.state = State::Value;
        if self.value.quoted > 0 {
            self.value.quoted -= 1;
        } else if prose {
            self.value.doubtful = Some(self.value.end);
        }
    }

    fn refute_by(&mut self, tag: Tag, start: usize, to: &Addressee<'_>) {
        self.refute(false);
        self.tag_in_value(tag, start, to);
    }

    fn settle_doubt(&mut self) {
        self.value.end = self.value.doubtful.take().expect("asked only when there is a doubt");
        self.shape = Shape::Broken;
        self.close_invoke();
    }

    fn open_value(&mut self, key: String) {
        self.value = Value { key, start: self.at, ..Value::default() };
        self.state = State::Value;
    }

    fn close_value(&mut self) {
        let Value { key, start, end, .. } = std::mem::take(&mut self.value);
        let open = self.open.as_mut().expect("a value is open only within an invoke");
        open.parameters.push((key, start..end));
    }

    /// The open value and its invoke are whole.
    fn close_invoke(&mut self) {
        self.close_value();
        self.finish_invoke();
    }

    fn finish_invoke(&mut self) {
        self.done.push(self.open.take().expect("an invoke is open"));
        self.state = State::Free;
    }

    fn close_block(&mut self) {
        let fits = self.shape == Shape::Opened && !self.done.is_empty();
        self.shape = if fits { Shape::Closed } else { Shape::Broken };
    }

    /// The open invoke cannot be read.
    fn breaks(&mut self) {
        self.shape = Shape::Broken;
        self.open = None;
        self.state = State::Broken;
    }
}
