//! Conversation to prompt and token stream to events, in the ATEM protocol.
//!
//! Also useful alone, to render prompts for another engine and to hear the text it streams:
//!
//! ```
//! use muse_atem::muse_core::{Error, contract::ParsedEvent};
//! use muse_atem::{TextOutputParser, render, request::ChatRequest, to_text};
//!
//! let body = br#"{"messages": [{"role": "user", "content": "Is 7 odd?"}]}"#;
//! let request = ChatRequest::parse(body)?;
//! let prompt = to_text(&render(&request.conversation)?)?;
//! assert!(prompt.ends_with("<|start|>user<|message|>Is 7 odd?<|eot|><|start|>assistant"));
//!
//! let mut listener = TextOutputParser::new(&request.conversation, &request.stop);
//! let mut heard = Vec::new();
//! listener.push(" to=user<|message|>Yes.<|eot|>", &mut heard);
//! listener.finish(true, &mut heard);
//! assert_eq!(heard, [ParsedEvent::Content("Yes.".to_owned())]);
//! # Ok::<(), Error>(())
//! ```
//!
//! An engine that takes text reads marks in it wherever they stand, so that a user could write
//! turns of others: [`to_text`] refuses such texts. Where token ids can be sent, [`encode`] keeps
//! them as text.

#![forbid(unsafe_code)]

mod constrain;
mod encode;
mod file;
pub mod json;
mod listen;
mod mark;
mod render;
pub mod request;
mod template;
mod tokenizer;

pub use constrain::{AnswerRule, Grammars, ThinkingBudget};
pub use encode::{encode, encode_with_images};
pub use file::{FileTemplate, template_warning};
pub use listen::{TextOutputParser, TokenOutputParser};
pub use mark::Mark;
/// The contracts whose types this crate takes and gives.
pub use muse_core;
pub use render::{render, render_history, spell, to_text};
pub use template::Template;
pub use tokenizer::Tokenizer;
