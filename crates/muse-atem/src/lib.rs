//! Conversation to prompt and token stream to events, in the ATEM chat protocol.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod answer_prefix;
mod answer_rule;
mod constrain;
mod encode;
mod gbnf;
pub mod json;
mod parser;
mod render;
pub mod request;
mod special_token;
mod template;
mod template_file;
mod tokenizer;

pub use answer_rule::AnswerRule;
pub use constrain::{Grammars, ReasoningBudget};
pub use encode::{encode, encode_with_images};
/// The contracts whose types appear in this crate's interface.
pub use muse_core;
pub use parser::{TextOutputParser, TokenOutputParser};
pub use render::{render, render_history, spell, to_text};
pub use special_token::SpecialToken;
pub use template::Template;
pub use template_file::{FileTemplate, template_warning};
pub use tokenizer::Tokenizer;
