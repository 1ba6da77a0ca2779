//! Streams tool calls while they are generated. Only what is certain is sent: a string up to where
//! its end cannot have been yet, any other value when it is complete.

use muse_core::contract::ToolCall;

use super::event_buffer::EventBuffer;
use super::tool_block::{CallTarget, Invoke, ToolBlockParser};
use super::{argument_value, call_id};
use crate::json::{self, Json};

/// What was sent of the calls of one message.
#[derive(Default)]
pub(super) struct CallDeltas {
    calls: Vec<PartialCall>,
    /// How many complete invokes of the message were processed.
    seen: usize,
}

/// What was sent of one call.
struct PartialCall {
    serial: usize,
    id: String,
    name: String,
    arguments: String,
    /// Parameters sent completely.
    parameters: usize,
    /// Bytes sent of the parameter after those; none while it has not begun.
    partial: Option<usize>,
    /// Whether that parameter is a string and whether it may be null; none until looked up.
    string: Option<(bool, bool)>,
}

impl CallDeltas {
    /// Sends what became certain. `single` when only the first call of the answer counts.
    pub(super) fn update(
        &mut self,
        block: &ToolBlockParser,
        to: &CallTarget<'_>,
        single: bool,
        events: &mut EventBuffer,
    ) {
        for invoke in &block.done()[self.seen..] {
            self.seen += 1;
            if let Some(call) = self.call(invoke, to, single) {
                let root = to.declared.schema(&call.name);
                call.parameters(invoke, block, root, events);
                call.append(events, |arguments| arguments.push('}'));
            }
        }
        let Some((invoke, value)) = block.open() else { return };
        // An invoke without parameters so far may still be rejected, so it is not announced yet.
        if value.is_none() && invoke.parameters.is_empty() {
            return;
        }
        if let Some(call) = self.call(invoke, to, single) {
            let root = to.declared.schema(&call.name);
            call.parameters(invoke, block, root, events);
            if let Some((key, certain)) = value {
                call.value(key, certain, root, events);
            }
        }
    }

    /// The call of an invoke, created when it is new; `None` when the invoke is no call to report.
    fn call(
        &mut self,
        invoke: &Invoke,
        to: &CallTarget<'_>,
        single: bool,
    ) -> Option<&mut PartialCall> {
        let known = self.calls.last().is_some_and(|call| call.serial == invoke.serial);
        match known {
            true => {}
            false if single && !self.calls.is_empty() => return None,
            false => {
                let name = to.declared.invoked(&invoke.name, to.recipient)?.to_owned();
                self.calls.push(PartialCall {
                    serial: invoke.serial,
                    id: call_id::new_call_id(),
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

    /// The complete calls of the message, under the ids that were already sent; sends what is
    /// missing of their arguments.
    pub(super) fn settle(
        &mut self,
        whole: Vec<(usize, ToolCall)>,
        events: &mut EventBuffer,
    ) -> Vec<ToolCall> {
        let settled = whole.into_iter().map(|(serial, call)| {
            match self.calls.binary_search_by_key(&serial, |partial| partial.serial) {
                Err(_) => call,
                Ok(at) => {
                    let partial = &mut self.calls[at];
                    if let Some(rest) = call.arguments.strip_prefix(partial.arguments.as_str()) {
                        partial.append(events, |arguments| arguments.push_str(rest));
                    }
                    // A duplicate parameter was sent twice; a JSON reader keeps the last one.
                    let arguments = std::mem::take(&mut partial.arguments);
                    ToolCall { id: partial.id.clone(), arguments, ..call }
                }
            }
        });
        settled.collect()
    }
}

impl PartialCall {
    /// Appends to the arguments with `write` and sends what was appended.
    fn append(&mut self, events: &mut EventBuffer, write: impl FnOnce(&mut String)) {
        let before = self.arguments.len();
        write(&mut self.arguments);
        let more = &self.arguments[before..];
        if !more.is_empty() {
            events.call_delta(&self.id, &self.name, more);
        }
    }

    /// Sends the complete parameters of an invoke.
    fn parameters(
        &mut self,
        invoke: &Invoke,
        block: &ToolBlockParser,
        root: Option<&Json>,
        events: &mut EventBuffer,
    ) {
        if self.arguments.is_empty() {
            self.append(events, |arguments| arguments.push('{'));
        }
        for (key, range) in invoke.parameters.iter().skip(self.parameters) {
            let value = &block.text()[range.clone()];
            let (partial, is_first) = (self.partial.take(), self.parameters == 0);
            self.append(events, |arguments| match partial {
                Some(sent) => {
                    json::escape(&value[sent..], arguments);
                    arguments.push('"');
                }
                None => {
                    begin_member(key, is_first, arguments);
                    arguments.push_str(&argument_value::typed(value, key, root).to_compact());
                }
            });
            self.parameters += 1;
            self.string = None;
        }
    }

    /// Sends what is certain of the open value.
    fn value(&mut self, key: &str, certain: &str, root: Option<&Json>, events: &mut EventBuffer) {
        let (string, null) =
            *self.string.get_or_insert_with(|| argument_value::is_string(key, root));
        if !string || (null && "null".starts_with(certain)) {
            return;
        }
        let (partial, is_first) = (self.partial.replace(certain.len()), self.parameters == 0);
        self.append(events, |arguments| {
            if partial.is_none() {
                begin_member(key, is_first, arguments);
                arguments.push('"');
            }
            json::escape(&certain[partial.unwrap_or(0)..], arguments);
        });
    }
}

/// Begins a member of a JSON object.
fn begin_member(key: &str, is_first: bool, arguments: &mut String) {
    if !is_first {
        arguments.push(',');
    }
    json::quote(key, arguments);
    arguments.push(':');
}
