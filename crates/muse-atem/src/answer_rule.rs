//! What a client can demand of the visible answer.

/// What the visible answer must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AnswerRule {
    /// Any text.
    #[default]
    Free,
    /// A JSON object.
    JsonObject,
    /// JSON that fits a schema, given as JSON text.
    JsonSchema(String),
    /// Text that matches a regular expression as a whole.
    Regex(String),
    /// Text of a grammar in the Lark syntax of llguidance.
    Lark(String),
    /// Text of a grammar in GBNF, the syntax of llama.cpp.
    Gbnf(String),
    /// One of several texts.
    Choice(Vec<String>),
}
