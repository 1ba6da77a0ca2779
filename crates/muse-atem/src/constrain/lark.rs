//! Spelling of grammars in the Lark syntax of llguidance.

use crate::json::Json;

/// A text as a quoted string of a grammar.
pub(super) fn literal(text: &str) -> String {
    Json::String(text.to_owned()).to_compact()
}
