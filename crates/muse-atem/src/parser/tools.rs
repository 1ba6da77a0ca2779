//! The tools that a request declared, and how a name written by the model maps to them.

use std::collections::HashMap;

use muse_core::contract::Tool;

use crate::json::Json;
use crate::render::namespace;

/// The declared tools.
pub(super) struct DeclaredTools {
    /// The parameter schemas by tool name; `null` when the schema is not JSON.
    schemas: HashMap<String, Json>,
    /// Tools and namespaces, sorted: the declared recipients.
    recipients: Vec<String>,
    longest: usize,
}

impl DeclaredTools {
    pub(super) fn new(tools: &[Tool]) -> Self {
        let schema = |tool: &Tool| Json::parse(&tool.parameters).unwrap_or(Json::Null);
        let schemas: HashMap<_, _> =
            tools.iter().map(|tool| (tool.name.clone(), schema(tool))).collect();
        let mut recipients: Vec<String> =
            schemas.keys().flat_map(|name| [name.clone(), namespace(name).to_owned()]).collect();
        recipients.sort_unstable();
        recipients.dedup();
        let longest = recipients.iter().map(String::len).max().unwrap_or(0);
        Self { schemas, recipients, longest }
    }

    /// Whether no tools were declared: then no output is ever a call.
    pub(super) fn is_empty(&self) -> bool {
        self.schemas.is_empty()
    }

    /// The schema of a declared tool's arguments.
    pub(super) fn schema(&self, tool: &str) -> Option<&Json> {
        self.schemas.get(tool)
    }

    /// Whether `name` is a declared tool or a namespace of one.
    pub(super) fn is_recipient(&self, name: &str) -> bool {
        self.recipients.binary_search_by(|known| known.as_str().cmp(name)).is_ok()
    }

    /// Whether a declared tool or namespace begins with `start`.
    pub(super) fn begins_recipient(&self, start: &str) -> bool {
        let at = self.recipients.partition_point(|known| known.as_str() < start);
        self.recipients.get(at).is_some_and(|known| known.starts_with(start))
    }

    /// Length of the longest recipient, in bytes.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The declared tool that `name` means, exactly or with its namespace doubled.
    pub(super) fn resolve(&self, name: &str) -> Option<&str> {
        if let Some((known, _)) = self.schemas.get_key_value(name) {
            return Some(known);
        }
        let (space, rest) = name.split_once('.')?;
        let (known, _) = self.schemas.get_key_value(rest)?;
        (namespace(known) == space).then_some(known)
    }

    /// The tool that an invoke of `name` in a message to `recipient` calls: the declared one, or
    /// `name` itself when neither is declared, so that the client can refuse it. `None` when a
    /// message to a declared tool invokes something else.
    pub(super) fn invoked<'a>(&'a self, name: &'a str, recipient: Option<&str>) -> Option<&'a str> {
        let addressed = recipient.and_then(|recipient| self.resolve(recipient));
        if let Some(known) = self.resolve(name) {
            return Some(known);
        }
        match addressed {
            Some(tool) => tool.rsplit('.').next().filter(|leaf| *leaf == name).map(|_| tool),
            None => Some(name),
        }
    }
}
