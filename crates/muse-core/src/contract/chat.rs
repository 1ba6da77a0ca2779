//! Conversations, prompts and parsed answers. JSON is passed as text, so that this crate needs no
//! JSON type and numbers keep their spelling.

use super::sequence::Token;
use crate::Result;

/// Text to tokens and back.
pub trait Tokenizer: Send + Sync {
    /// Appends the tokens of `text`. Special tokens spelled in `text` are encoded as text, so that
    /// text cannot forge a message.
    fn encode(&self, text: &str, out: &mut Vec<Token>);
    /// The token of a special token's spelling in full (`<|eot|>`).
    fn special_token(&self, spelling: &str) -> Option<Token>;
    /// Whether the token is special or reserved.
    fn is_special(&self, token: Token) -> bool;
    /// Appends the bytes of a token: characters may span tokens. Special tokens give their
    /// spelling.
    fn decode(&self, token: Token, out: &mut Vec<u8>);
    /// Number of tokens.
    fn vocab_size(&self) -> usize;
}

/// Turns a conversation into a prompt and parses the answer.
pub trait PromptTemplate: Send + Sync {
    /// The prompt, ending where the assistant's message begins.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] names the message that cannot be rendered and why.
    fn render(&self, conversation: &Conversation) -> Result<Vec<PromptPart>>;
    /// A parser for one answer to this conversation. `stop` are texts that end the visible answer
    /// and are not part of it.
    fn output_parser(&self, conversation: &Conversation, stop: &[String]) -> Box<dyn OutputParser>;
}

/// Parses one answer, token by token.
pub trait OutputParser: Send {
    /// Takes a token and appends the events that are certain. No event is ever revoked.
    fn push(&mut self, token: Token, out: &mut Vec<ParsedEvent>);
    /// Ends the answer and appends what was held back. `complete` is true when a stop token ended
    /// it, false when it was cut by length or cancelled.
    fn finish(&mut self, complete: bool, out: &mut Vec<ParsedEvent>);
    /// What the last token is part of, for counting reasoning tokens. Text that may become a
    /// header counts as protocol, even when it turns out to be content.
    fn channel(&self) -> Channel;
    /// Appends the tokens that the visible answer consists of, for their log-probabilities: those
    /// whose text was settled since the last call. The shares of all tokens in order are the
    /// [`ParsedEvent::Content`] texts joined; a token of which more may become content comes
    /// later, at the latest after [`ParsedEvent::StopText`] or [`OutputParser::finish`].
    fn content_tokens(&mut self, out: &mut Vec<ContentToken>);
}

/// A token's share of the visible answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentToken {
    /// Which of the tokens passed to [`OutputParser::push`] it is, from 0.
    pub index: usize,
    /// Bytes of the visible answer that it accounts for: all bytes of the token unless a part is
    /// a header or a stop text, and the newline that joins two messages.
    pub bytes: usize,
}

/// What a token is part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channel {
    /// Special tokens and message headers.
    #[default]
    Protocol,
    /// Reasoning.
    Reasoning,
    /// The visible answer.
    Content,
    /// A message to a tool.
    ToolCall,
}

/// A part of a parsed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedEvent {
    /// More of the reasoning.
    Reasoning(String),
    /// More of the visible answer.
    Content(String),
    /// A complete tool call.
    ToolCall(ToolCall),
    /// More of a call that is still being generated, when the conversation asked for it. The
    /// arguments of its parts, joined, are those of the complete call that follows under the
    /// same id; when the answer is cut, none follows.
    ToolCallDelta(ToolCall),
    /// A stop text was found. No event follows; the request can be cancelled.
    StopText(String),
}

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptPart {
    /// Text that is encoded as text, whatever it spells.
    Text(String),
    /// A special token, spelled in full.
    Special(&'static str),
    /// The `n`-th picture of the conversation, from 0.
    Image(usize),
    /// The `n`-th video of the conversation, from 0.
    Video(usize),
}

/// Everything that a prompt is rendered from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    /// The messages so far.
    pub messages: Vec<Message>,
    /// Tools the assistant may call.
    pub tools: Vec<Tool>,
    /// Descriptions of tool namespaces, in order.
    pub namespaces: Vec<(String, String)>,
    /// `low`, `medium`, `high` or `xhigh`; none means `high`.
    pub reasoning_strength: Option<String>,
    /// `YYYY-MM-DD`; none means the template's default.
    pub knowledge_cutoff: Option<String>,
    /// `YYYY-MM-DD`; none omits the line.
    pub current_date: Option<String>,
    /// Parse at most one call: the answer ends behind it.
    pub single_call: bool,
    /// Emit calls while they are generated ([`ParsedEvent::ToolCallDelta`]), not only when they are
    /// complete.
    pub growing_calls: bool,
    /// The beginning of the answer, given behind the assistant's header, such as ` to=user` and the
    /// `<|message|>` token. Empty leaves it to the model.
    pub answer_prefix: Vec<PromptPart>,
    /// Ends the prompt before the header of the answer, so that the model generates it.
    pub omit_generation_prompt: bool,
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Instructions.
    System(Content),
    /// From the user.
    User(Content),
    /// From the assistant.
    Assistant {
        /// Its reasoning; rendered unless empty.
        reasoning: Option<String>,
        /// The visible answer; not rendered when there are calls.
        content: Content,
        /// Tools it called.
        calls: Vec<ToolCall>,
        /// The recipient; none means the user.
        recipient: Option<String>,
        /// Whether the assistant's turn ended; none means that the recipient decides.
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

/// The content of a message.
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
    /// Whether arguments must match the schema.
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
