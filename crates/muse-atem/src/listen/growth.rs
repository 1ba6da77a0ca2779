//! Calls while they are written. What goes out is certain: a string as far as its end can not come
//! earlier, any other value when it is whole.

use muse_core::contract::ToolCall;

use super::block::{Addressee, Block, Invoke};
use super::voice::Voice;
use super::{id, schema};
use crate::json::{self, Json};

/// What went out of the calls of a body.
#[derive(Default)]
pub(super) struct Growth {
    calls: Vec<Grown>,
    /// Whole invokes of the body that were seen.
    seen: usize,
}

/// What went out of a call.
struct Grown {
    serial: usize,
    id: String,
    name: String,
    arguments: String,
    /// Parameters that went out whole.
    parameters: usize,
    /// Bytes that went out of the next one, when it began to.
    partial: Option<usize>,
    /// Whether the next one is a string, and may be null, once that was asked for.
    string: Option<(bool, bool)>,
}

impl Growth {
    /// Sends what became certain. `single` when only the first call counts.
    pub(super) fn follow(
        &mut self,
        block: &Block,
        to: &Addressee<'_>,
        single: bool,
        voice: &mut Voice,
    ) {
        for invoke in &block.done()[self.seen..] {
            self.seen += 1;
            if let Some(call) = self.call(invoke, to, single) {
                let root = to.declared.schema(&call.name);
                call.parameters(invoke, block, root, voice);
                call.grow(voice, |arguments| arguments.push('}'));
            }
        }
        let Some((invoke, value)) = block.open() else { return };
        // An invoke can be abandoned until its first parameter shows that it is one.
        if value.is_none() && invoke.parameters.is_empty() {
            return;
        }
        if let Some(call) = self.call(invoke, to, single) {
            let root = to.declared.schema(&call.name);
            call.parameters(invoke, block, root, voice);
            if let Some((key, sure)) = value {
                call.value(key, sure, root, voice);
            }
        }
    }

    /// The call of an invoke, begun when it is new; `None` when it is none to be heard.
    fn call(&mut self, invoke: &Invoke, to: &Addressee<'_>, single: bool) -> Option<&mut Grown> {
        let known = self.calls.last().is_some_and(|call| call.serial == invoke.serial);
        match known {
            true => {}
            false if single && !self.calls.is_empty() => return None,
            false => {
                let name = to.declared.invoked(&invoke.name, to.recipient)?.to_owned();
                self.calls.push(Grown {
                    serial: invoke.serial,
                    id: id::call_id(),
                    name,
                    arguments: String::new(),
                    parameters: 0,
                    partial: None,
                    string: None,
                });
            }
        }
        self.calls.last_mut()
    }

    /// The whole calls of the body under the ids that went out, what is missing of them sent.
    pub(super) fn settle(
        &mut self,
        whole: Vec<(usize, ToolCall)>,
        voice: &mut Voice,
    ) -> Vec<ToolCall> {
        let settled = whole.into_iter().map(|(serial, call)| {
            match self.calls.binary_search_by_key(&serial, |grown| grown.serial) {
                Err(_) => call,
                Ok(at) => {
                    let grown = &mut self.calls[at];
                    if let Some(rest) = call.arguments.strip_prefix(grown.arguments.as_str()) {
                        grown.grow(voice, |arguments| arguments.push_str(rest));
                    }
                    // A parameter that came twice went out twice; the last one counts to readers.
                    let arguments = std::mem::take(&mut grown.arguments);
                    ToolCall { id: grown.id.clone(), arguments, ..call }
                }
            }
        });
        settled.collect()
    }
}

impl Grown {
    /// Sends what `write` appends to the arguments.
    fn grow(&mut self, voice: &mut Voice, write: impl FnOnce(&mut String)) {
        let before = self.arguments.len();
        write(&mut self.arguments);
        let more = &self.arguments[before..];
        if !more.is_empty() {
            voice.call_part(&self.id, &self.name, more);
        }
    }

    /// The parameters of an invoke that are whole.
    fn parameters(
        &mut self,
        invoke: &Invoke,
        block: &Block,
        root: Option<&Json>,
        voice: &mut Voice,
    ) {
        if self.arguments.is_empty() {
            self.grow(voice, |arguments| arguments.push('{'));
        }
        for (key, range) in invoke.parameters.iter().skip(self.parameters) {
            let value = &block.text()[range.clone()];
            let (partial, is_first) = (self.partial.take(), self.parameters == 0);
            self.grow(voice, |arguments| match partial {
                Some(sent) => {
                    json::escape(&value[sent..], arguments);
                    arguments.push('"');
                }
                None => {
                    begin(key, is_first, arguments);
                    arguments.push_str(&schema::typed(value, key, root).to_compact());
                }
            });
            self.parameters += 1;
            self.string = None;
        }
    }

    /// What is certain of the value that is open.
    fn value(&mut self, key: &str, sure: &str, root: Option<&Json>, voice: &mut Voice) {
        let (string, null) = *self.string.get_or_insert_with(|| schema::is_string(key, root));
        if !string || (null && "null".starts_with(sure)) {
            return;
        }
        let (partial, is_first) = (self.partial.replace(sure.len()), self.parameters == 0);
        self.grow(voice, |arguments| {
            if partial.is_none() {
                begin(key, is_first, arguments);
                arguments.push('"');
            }
            json::escape(&sure[partial.unwrap_or(0)..], arguments);
        });
    }
}

/// Begins a member of an object.
fn begin(key: &str, is_first: bool, arguments: &mut String) {
    if !is_first {
        arguments.push(',');
    }
    json::quote(key, arguments);
    arguments.push(':');
}
