//! Parses a message to a tool into calls. Each byte is read once, as it comes.
//!
//! Parameter values are opaque: a closing tag ends a value only when what follows it can follow a
//! value. The closer is undecided until enough of the following text came; when that does not fit,
//! the closer was part of the value. Closers followed by plain text end the value only when no
//! later closer does.

use std::ops::Range;

use super::tags::{Scan, Tag, TagScanner};
use super::tools::DeclaredTools;
use super::work_counter;

/// A call as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invoke {
    /// Counts the invokes of the message from 1, unreadable ones included.
    pub(super) serial: usize,
    pub(super) name: String,
    /// Names of the parameters, and the ranges of their values in the message.
    pub(super) parameters: Vec<(String, Range<usize>)>,
}

/// A message to a tool while it is generated.
pub(super) struct ToolBlockParser {
    text: String,
    /// Bytes that were parsed.
    at: usize,
    tags: TagScanner,
    state: BlockState,
    /// The open invoke, without its open value.
    open: Option<Invoke>,
    value: Value,
    done: Vec<Invoke>,
    opened: usize,
    form: BlockForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockState {
    /// Outside of invokes.
    Outside,
    /// In an invoke, between parameters.
    Invoke,
    /// In a value.
    Value,
    /// After a `</atem:parameter>` that may have ended the value; the next two states, after the
    /// `</atem:invoke>` and the `</atem:function_calls>` that follow it.
    AfterValue,
    AfterInvoke,
    AfterBlock,
    /// In an invoke that cannot be read; and after an `</atem:invoke>` that may have ended it.
    Broken,
    AfterBroken,
}

/// The open value.
#[derive(Default)]
struct Value {
    key: String,
    start: usize,
    /// Offset of the closer that is undecided.
    end: usize,
    /// Parameter openers within the value whose closers have not come: a call is quoted in the
    /// value.
    nested: usize,
    /// Where the value ends if the message ends here or a new call begins: its closer was followed
    /// by the closers of invoke or block, and those by plain text.
    possible_end: Option<usize>,
    /// The invoke was written as `name="TOOL.PARAMETER"` and only white space came since.
    joined_name: bool,
}

/// Whether the message is nothing but one well-formed block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockForm {
    Empty,
    Opened,
    Closed,
    Broken,
}

/// The recipient of the message and the declared tools: they decide what `name="TOOL.PARAMETER"`
/// means.
pub(super) struct CallTarget<'a> {
    pub(super) declared: &'a DeclaredTools,
    pub(super) recipient: Option<&'a str>,
}

impl CallTarget<'_> {
    /// `TOOL.PARAMETER` split in two, when TOOL is the recipient and PARAMETER one of its
    /// parameters.
    fn joined_name(&self, name: &str) -> Option<(String, String)> {
        let tool = self.recipient.filter(|tool| name.starts_with(*tool))?;
        let parameter = name[tool.len()..].strip_prefix('.')?;
        let schema = self.declared.schema(tool)?;
        let known = self.declared.resolve(name).is_none()
            && schema.member("properties")?.member(parameter).is_some();
        known.then(|| (tool.to_owned(), parameter.to_owned()))
    }
}

impl ToolBlockParser {
    pub(super) fn new(longest_name: usize) -> Self {
        Self {
            text: String::new(),
            at: 0,
            tags: TagScanner::new(longest_name),
            state: BlockState::Outside,
            open: None,
            value: Value::default(),
            done: Vec::new(),
            opened: 0,
            form: BlockForm::Empty,
        }
    }

    /// The text of the message so far.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a special token that comes now would be inside a value.
    pub(super) fn is_in_value(&self) -> bool {
        matches!(self.state, BlockState::Value | BlockState::AfterValue)
    }

    /// Whether the message can no longer be nothing but one well-formed block of declared calls.
    pub(super) fn is_text(&self) -> bool {
        self.form == BlockForm::Broken
    }

    /// The complete calls.
    pub(super) fn done(&self) -> &[Invoke] {
        &self.done
    }

    /// The open call, with the name of its open value and what is certain of that value.
    pub(super) fn open(&self) -> Option<(&Invoke, Option<(&str, &str)>)> {
        let open = self.open.as_ref()?;
        let end = match self.state {
            BlockState::Value => self.value.possible_end.unwrap_or(self.at),
            BlockState::AfterValue | BlockState::AfterInvoke | BlockState::AfterBlock => {
                self.value.end
            }
            _ => return Some((open, None)),
        };
        let certain = if self.value.joined_name { "" } else { &self.text[self.value.start..end] };
        Some((open, Some((self.value.key.as_str(), certain))))
    }

    /// Takes more text of the message.
    pub(super) fn take(&mut self, text: &str, to: &CallTarget<'_>) {
        self.text.push_str(text);
        while self.at < self.text.len() {
            let rest = &self.text[self.at..];
            let plain = rest.find('<').unwrap_or(rest.len());
            work_counter::add(plain);
            if plain > 0 {
                let blank = rest[..plain].bytes().all(|byte| byte.is_ascii_whitespace());
                if !blank {
                    self.plain_text();
                }
                self.at += plain;
                continue;
            }
            match self.tags.scan(rest) {
                Scan::Partial => return,
                Scan::Text => {
                    self.plain_text();
                    self.at += 1;
                }
                Scan::Tag(tag, length) => {
                    let start = self.at;
                    self.at += length;
                    self.tag(tag, start, to);
                }
            }
        }
    }

    /// The calls, when the message ends here; `finished` when it ended rather than was cut. Also
    /// returns whether the message is one well-formed block and nothing else.
    pub(super) fn end(&mut self, finished: bool) -> (Vec<Invoke>, bool) {
        match self.state {
            BlockState::AfterInvoke => self.close_invoke(),
            BlockState::AfterBlock => {
                self.close_invoke();
                self.close_block();
            }
            BlockState::Value | BlockState::AfterValue
                if finished && self.value.possible_end.is_some() =>
            {
                self.close_at_possible_end();
            }
            BlockState::Outside => {}
            _ => self.form = BlockForm::Broken,
        }
        if self.at < self.text.len() {
            self.form = BlockForm::Broken;
        }
        let pure =
            matches!(self.form, BlockForm::Opened | BlockForm::Closed) && !self.done.is_empty();
        (std::mem::take(&mut self.done), pure)
    }

    /// Text other than white space that is not a tag.
    fn plain_text(&mut self) {
        match self.state {
            BlockState::Outside => self.form = BlockForm::Broken,
            BlockState::Invoke => self.mark_broken(),
            BlockState::Value | BlockState::Broken => {}
            BlockState::AfterValue => self.reject_closer(false),
            BlockState::AfterInvoke | BlockState::AfterBlock => self.reject_closer(true),
            BlockState::AfterBroken => self.state = BlockState::Broken,
        }
    }

    fn tag(&mut self, tag: Tag, start: usize, to: &CallTarget<'_>) {
        match self.state {
            BlockState::Outside => self.tag_outside(tag, to),
            BlockState::Invoke => match tag {
                Tag::OpenParameter(key) => self.open_value(key),
                Tag::CloseInvoke => self.finish_invoke(),
                Tag::OpenInvoke(_) => {
                    self.form = BlockForm::Broken;
                    self.open = None;
                    self.tag_outside(tag, to);
                }
                _ => self.mark_broken(),
            },
            BlockState::Value => self.tag_in_value(tag, start, to),
            BlockState::AfterValue => match tag {
                Tag::OpenParameter(key) => {
                    self.close_value();
                    self.open_value(key);
                }
                Tag::CloseInvoke => self.state = BlockState::AfterInvoke,
                tag => self.reject_closer_at_tag(tag, start, to),
            },
            BlockState::AfterInvoke => match tag {
                Tag::OpenInvoke(_) | Tag::OpenBlock => {
                    self.close_invoke();
                    self.tag_outside(tag, to);
                }
                Tag::CloseBlock => self.state = BlockState::AfterBlock,
                tag => self.reject_closer_at_tag(tag, start, to),
            },
            BlockState::AfterBlock => match tag {
                Tag::OpenInvoke(_) | Tag::OpenBlock => {
                    self.close_invoke();
                    self.close_block();
                    self.tag_outside(tag, to);
                }
                tag => self.reject_closer_at_tag(tag, start, to),
            },
            BlockState::Broken => {
                if tag == Tag::CloseInvoke {
                    self.state = BlockState::AfterBroken;
                }
            }
            BlockState::AfterBroken => match tag {
                Tag::OpenInvoke(_) | Tag::OpenBlock | Tag::CloseBlock => {
                    self.state = BlockState::Outside;
                    self.tag_outside(tag, to);
                }
                Tag::CloseInvoke => {}
                _ => self.state = BlockState::Broken,
            },
        }
    }

    fn tag_outside(&mut self, tag: Tag, to: &CallTarget<'_>) {
        match tag {
            Tag::OpenBlock => {
                let first = self.form == BlockForm::Empty && self.done.is_empty();
                self.form = if first { BlockForm::Opened } else { BlockForm::Broken };
                self.state = BlockState::Outside;
            }
            Tag::CloseBlock => self.close_block(),
            Tag::OpenInvoke(name) => self.open_invoke(name, to),
            Tag::BadInvoke => self.mark_broken(),
            Tag::CloseInvoke | Tag::OpenParameter(_) | Tag::CloseParameter => {
                self.form = BlockForm::Broken;
            }
        }
    }

    fn open_invoke(&mut self, name: String, to: &CallTarget<'_>) {
        match self.form {
            BlockForm::Empty if self.done.is_empty() => self.form = BlockForm::Opened,
            BlockForm::Opened => {}
            _ => self.form = BlockForm::Broken,
        }
        if to.declared.resolve(&name).is_none() {
            self.form = BlockForm::Broken;
        }
        self.opened += 1;
        let opened = |name| Invoke { serial: self.opened, name, parameters: Vec::new() };
        match to.joined_name(&name) {
            Some((tool, parameter)) => {
                self.open = Some(opened(tool));
                self.open_value(parameter);
                self.value.joined_name = true;
            }
            None => {
                self.open = Some(opened(name));
                self.state = BlockState::Invoke;
            }
        }
    }

    fn tag_in_value(&mut self, tag: Tag, start: usize, to: &CallTarget<'_>) {
        if std::mem::take(&mut self.value.joined_name)
            && matches!(tag, Tag::OpenParameter(_) | Tag::CloseInvoke)
            && self.text[self.value.start..start].trim().is_empty()
        {
            self.mark_broken();
            return;
        }
        match tag {
            Tag::CloseParameter => {
                self.value.possible_end = None;
                self.value.end = start;
                self.state = BlockState::AfterValue;
            }
            Tag::OpenParameter(_) => {
                self.value.possible_end = None;
                self.value.nested += 1;
            }
            Tag::CloseInvoke => self.value.possible_end = None,
            Tag::OpenInvoke(_) if self.value.possible_end.is_some() => {
                self.close_at_possible_end();
                self.tag_outside(tag, to);
            }
            _ => {}
        }
    }

    /// The undecided closer was part of the value; `plain` when plain text showed it.
    fn reject_closer(&mut self, plain: bool) {
        self.state = BlockState::Value;
        if self.value.nested > 0 {
            self.value.nested -= 1;
        } else if plain {
            self.value.possible_end = Some(self.value.end);
        }
    }

    fn reject_closer_at_tag(&mut self, tag: Tag, start: usize, to: &CallTarget<'_>) {
        self.reject_closer(false);
        self.tag_in_value(tag, start, to);
    }

    fn close_at_possible_end(&mut self) {
        self.value.end =
            self.value.possible_end.take().expect("the caller checked that there is one");
        self.form = BlockForm::Broken;
        self.close_invoke();
    }

    fn open_value(&mut self, key: String) {
        self.value = Value { key, start: self.at, ..Value::default() };
        self.state = BlockState::Value;
    }

    fn close_value(&mut self) {
        let Value { key, start, end, .. } = std::mem::take(&mut self.value);
        let open = self.open.as_mut().expect("a value is open only within an invoke");
        open.parameters.push((key, start..end));
    }

    /// The open value and its invoke are complete.
    fn close_invoke(&mut self) {
        self.close_value();
        self.finish_invoke();
    }

    fn finish_invoke(&mut self) {
        self.done.push(self.open.take().expect("an invoke is open"));
        self.state = BlockState::Outside;
    }

    fn close_block(&mut self) {
        let fits = self.form == BlockForm::Opened && !self.done.is_empty();
        self.form = if fits { BlockForm::Closed } else { BlockForm::Broken };
    }

    /// The open invoke cannot be read.
    fn mark_broken(&mut self) {
        self.form = BlockForm::Broken;
        self.open = None;
        self.state = BlockState::Broken;
    }
}
