//! Conversations, prompts and what is heard in the answer. JSON travels as text, so that this
//! crate needs no JSON value type and numbers keep their spelling.

use super::place::Token;
use crate::Result;

/// Text to tokens and back.
pub trait Tokenizer: Send + Sync {
    /// Appends the tokens of `text`. Marks of the protocol in `text` stay text: nobody can forge a
    /// turn.
    fn encode(&self, text: &str, out: &mut Vec<Token>);
    /// The token of a protocol mark, spelled in full (`<|eot|>`).
    fn control(&self, mark: &str) -> Option<Token>;
    /// Whether the token is a protocol mark or reserved.
    fn is_control(&self, token: Token) -> bool;
    /// Appends the bytes of a token: characters may span tokens. Marks give their spelling.
    fn decode(&self, token: Token, out: &mut Vec<u8>);
    /// Number of tokens.
    fn size(&self) -> usize;
}

/// Turns a conversation into a prompt and hears the answer.
pub trait PromptTemplate: Send + Sync {
    /// The prompt, ending where the assistant is to speak. [`crate::Error::Invalid`] says which
    /// turn cannot be rendered and why.
    fn render(&self, conversation: &Conversation) -> Result<Vec<Piece>>;
    /// A listener for one answer to this conversation. `stop` are texts that end the visible
    /// answer, themselves left out.
    fn listener(&self, conversation: &Conversation, stop: &[String]) -> Box<dyn Listener>;
}

/// Hears one answer, token by token.
pub trait Listener: Send {
    /// Takes a token; appends what can be said for certain. Nothing is ever taken back.
    fn hear(&mut self, token: Token, out: &mut Vec<Heard>);
    /// The answer ended; settles what was held. `complete` when a stop token ended it, false when
    /// it was cut (length, cancelled).
    fn finish(&mut self, complete: bool, out: &mut Vec<Heard>);
    /// Where the token heard last belongs, for counting reasoning tokens and for choosing the
    /// tokens whose log-probabilities are shown.
    fn channel(&self) -> Channel;
}

/// What a token is part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channel {
    /// Marks and headers.
    #[default]
    Frame,
    /// Reasoning.
    Think,
    /// The visible answer.
    Say,
    /// A message to a tool.
    Call,
}

/// What was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// More of the reasoning.
    Think(String),
    /// More of the answer.
    Say(String),
    /// A whole tool call.
    Call(ToolCall),
    /// More of a call that is still being written, when the conversation asked for it. The
    /// arguments of its parts, joined, are those of the whole call that follows under the same
    /// id; when the answer is cut, none follows.
    CallPart(ToolCall),
    /// A stop text was met; the request can be cancelled, nothing follows.
    StopText(String),
}

/// A piece of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text that is encoded as text, whatever it spells.
    Text(String),
    /// A protocol mark, spelled in full.
    Control(&'static str),
    /// The `n`-th picture of the conversation, from 0.
    Image(usize),
    /// The `n`-th video of the conversation, from 0.
    Video(usize),
}

/// Everything a prompt is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// The turns so far.
    pub turns: Vec<Turn>,
    /// Tools the assistant may call.
    pub tools: Vec<Tool>,
    /// Descriptions of tool namespaces, in order.
    pub namespaces: Vec<(String, String)>,
    /// low, medium, high or xhigh; none means high.
    pub reasoning_strength: Option<String>,
    /// `YYYY-MM-DD`; none means the template's own.
    pub knowledge_cutoff: Option<String>,
    /// `YYYY-MM-DD`; none leaves the line out.
    pub current_date: Option<String>,
    /// Hear one call at most: the answer ends behind it.
    pub single_call: bool,
    /// Hear calls while they are written ([`Heard::CallPart`]), not only when they are whole.
    pub growing_calls: bool,
    /// Text committed on behalf of the assistant behind its header, such as ` to=user` and the
    /// message mark; none lets it choose.
    pub tail: Vec<Piece>,
}

/// A turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// Instructions.
    System(Content),
    /// The user speaks.
    User(Content),
    /// The assistant spoke.
    Assistant {
        /// What it thought, rendered when not empty.
        reasoning: Option<String>,
        /// What it said; not rendered beside calls.
        content: Content,
        /// Tools it called.
        calls: Vec<ToolCall>,
        /// Whom it spoke to; none means the user.
        recipient: Option<String>,
        /// Whether the turn ended; none decides by the recipient.
        end_turn: Option<bool>,
    },
    /// A tool's result.
    Tool {
        /// The tool's name, if given.
        name: Option<String>,
        /// The call it answers.
        call_id: Option<String>,
        /// What it returned.
        content: Content,
    },
}

/// What a turn says.
pub type Content = Vec<Part>;

/// A part of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text.
    Text(String),
    /// A picture; the pictures of a conversation are counted in order.
    Image,
    /// A video, counted likewise.
    Video,
}

/// A tool that may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// `name` or `namespace.name`.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON schema of its arguments, as JSON text.
    pub parameters: String,
    /// Whether arguments must fit the schema.
    pub strict: bool,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Unique over the conversation.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// A JSON object, as JSON text.
    pub arguments: String,
}
