//! Renders with a checkpoint's own template file, in the environment that transformers gives chat
//! templates. Only what the template itself wrote becomes a special token.

mod arguments;
mod check;
mod clock;
mod compiled;
mod dict;
mod environment;
mod filters;
mod format;
mod methods;
mod operators;
mod python;
mod rewrite;
mod walk;

use std::sync::Arc;

use muse_core::Result;
use muse_core::contract::{Conversation, OutputParser, PromptPart, PromptTemplate, Tokenizer};
use sha2::{Digest, Sha256};

use crate::parser::TokenOutputParser;
use crate::render::check_media;
use compiled::CompiledTemplate;

/// The template that [`crate::render`] reproduces: its length, and the beginning and end of its
/// SHA-256.
const NATIVE: (usize, &str, &str) = (9_992, "cfc67e5f", "78");

/// Renders with a template file and parses answers like the native template.
pub struct FileTemplate {
    template: CompiledTemplate,
    tokenizer: Arc<dyn Tokenizer>,
    /// Special tokens the template may write, longest first.
    special_tokens: Vec<&'static str>,
}

impl FileTemplate {
    /// Compiles the text of a template file.
    ///
    /// # Errors
    /// [`muse_core::Error::Invalid`] with the line when it does not compile, or names a filter,
    /// test, tag, function or method that there is not.
    pub fn new(source: &str, tokenizer: Arc<dyn Tokenizer>) -> Result<Self> {
        let template = CompiledTemplate::new(source)?;
        let special_tokens = special_tokens(source, tokenizer.as_ref());
        Ok(Self { template, tokenizer, special_tokens })
    }
}

impl PromptTemplate for FileTemplate {
    fn render(&self, conversation: &Conversation) -> Result<Vec<PromptPart>> {
        let (arguments, guard) = arguments::of(conversation)?;
        let text = self.template.render(&arguments)?;
        let mut parts = self.parts(&text, guard);
        check_media(conversation, &parts)?;
        parts.extend(conversation.answer_prefix.iter().cloned());
        Ok(join(parts))
    }

    fn output_parser(&self, conversation: &Conversation, stop: &[String]) -> Box<dyn OutputParser> {
        Box::new(TokenOutputParser::new(conversation, stop, Arc::clone(&self.tokenizer)))
    }
}

impl FileTemplate {
    /// Splits rendered text at the special tokens the template wrote. `guard` follows every `|` of
    /// the conversation.
    fn parts(&self, text: &str, guard: char) -> Vec<PromptPart> {
        let mut parts = Vec::new();
        let (mut images, mut videos) = (0, 0);
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('<') {
            plain.push_str(&rest[..at]);
            rest = &rest[at..];
            let Some(token) = self.special_tokens.iter().find(|token| rest.starts_with(**token))
            else {
                plain.push('<');
                rest = &rest[1..];
                continue;
            };
            push_text(&mut parts, &plain, guard);
            plain.clear();
            rest = &rest[token.len()..];
            parts.push(match *token {
                "<|patch|>" => {
                    images += 1;
                    PromptPart::Image(images - 1)
                }
                "<|video|>" => {
                    videos += 1;
                    PromptPart::Video(videos - 1)
                }
                token => PromptPart::Special(token),
            });
        }
        plain.push_str(rest);
        push_text(&mut parts, &plain, guard);
        parts
    }
}

fn push_text(parts: &mut Vec<PromptPart>, text: &str, guard: char) {
    if !text.is_empty() {
        parts.push(PromptPart::Text(text.replace(guard, "")));
    }
}

/// Joins adjacent texts, as the tokenizer must see them.
fn join(parts: Vec<PromptPart>) -> Vec<PromptPart> {
    let mut joined: Vec<PromptPart> = Vec::with_capacity(parts.len());
    for part in parts {
        match (joined.last_mut(), part) {
            (Some(PromptPart::Text(last)), PromptPart::Text(text)) => last.push_str(&text),
            (_, part) => joined.push(part),
        }
    }
    joined
}

/// The special tokens that a template can write: those it spells, and the variable `bos_token`.
fn special_tokens(source: &str, tokenizer: &dyn Tokenizer) -> Vec<&'static str> {
    let mut special_tokens: Vec<&'static str> =
        vec![crate::special_token::BEGIN_OF_TEXT, "<|patch|>", "<|video|>"];
    special_tokens.extend(crate::SpecialToken::ALL.iter().map(|token| token.text()));
    let mut rest = source;
    while let Some(at) = rest.find("<|") {
        rest = &rest[at..];
        let Some(end) = rest.find("|>") else { break };
        let spelling = &rest[..end + 2];
        if tokenizer.special_token(spelling).is_some() && !special_tokens.contains(&spelling) {
            // Prompt parts hold static spellings. Leaking is bounded: a template is loaded once.
            special_tokens.push(Box::leak(spelling.to_owned().into_boxed_str()));
        }
        rest = &rest[2..];
    }
    special_tokens.sort_by_key(|token| std::cmp::Reverse(token.len()));
    special_tokens
}

/// A warning about a checkpoint's own template; none when it is the one that the native renderer
/// reproduces.
pub fn template_warning(source: &str) -> Option<String> {
    let hash: String =
        Sha256::digest(source.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let (length, begin, end) = NATIVE;
    let native = source.len() == length && hash.starts_with(begin) && hash.ends_with(end);
    (!native).then(|| {
        format!(
            "the checkpoint's chat template ({} bytes, sha256 {hash}) is not the one rendered \
             natively ({length} bytes, sha256 {begin}…{end}); prompts may differ from what the \
             model was trained on. Use --chat-template FILE to render by the file",
            source.len()
        )
    })
}
