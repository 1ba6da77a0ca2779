//! Rendering by a checkpoint's own template file, in the environment HuggingFace gives such
//! templates. Marks count only where the template itself wrote them.

mod arguments;
mod environment;

use std::sync::Arc;

use minijinja::Environment;
use muse_core::contract::{Conversation, OutputParser, PromptPart, PromptTemplate, Tokenizer};
use muse_core::{Error, Result};
use sha2::{Digest, Sha256};

use crate::listen::TokenOutputParser;
use crate::render::check_media;

/// Of the template that [`crate::render`] reproduces: length, and how its SHA-256 begins and ends.
const NATIVE: (usize, &str, &str) = (9_992, "cfc67e5f", "78");

const NAME: &str = "chat template";

/// Renders by a template file and hears answers as the native template does.
pub struct FileTemplate {
    environment: Environment<'static>,
    tokenizer: Arc<dyn Tokenizer>,
    /// Marks the template may write, longest first.
    marks: Vec<&'static str>,
}

impl FileTemplate {
    /// Takes the text of a template file.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the line when it is no template.
    pub fn new(source: &str, tokenizer: Arc<dyn Tokenizer>) -> Result<Self> {
        let mut environment = environment::hugging_face();
        environment.add_template_owned(NAME, source.to_owned()).map_err(|e| refused(&e))?;
        let marks = marks(source, tokenizer.as_ref());
        Ok(Self { environment, tokenizer, marks })
    }
}

impl PromptTemplate for FileTemplate {
    fn render(&self, conversation: &Conversation) -> Result<Vec<PromptPart>> {
        let (arguments, guard) = arguments::of(conversation)?;
        let template = self.environment.get_template(NAME).map_err(|e| refused(&e))?;
        let text = template.render(environment::value(&arguments)).map_err(|e| refused(&e))?;
        let mut pieces = self.pieces(&text, guard);
        check_media(conversation, &pieces)?;
        pieces.extend(conversation.answer_prefix.iter().cloned());
        Ok(join(pieces))
    }

    fn output_parser(&self, conversation: &Conversation, stop: &[String]) -> Box<dyn OutputParser> {
        Box::new(TokenOutputParser::new(conversation, stop, Arc::clone(&self.tokenizer)))
    }
}

impl FileTemplate {
    /// Cuts rendered text at the marks the template wrote; `guard` keeps those of others apart.
    fn pieces(&self, text: &str, guard: char) -> Vec<PromptPart> {
        let mut pieces = Vec::new();
        let (mut images, mut videos) = (0, 0);
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('<') {
            plain.push_str(&rest[..at]);
            rest = &rest[at..];
            let Some(mark) = self.marks.iter().find(|mark| rest.starts_with(**mark)) else {
                plain.push('<');
                rest = &rest[1..];
                continue;
            };
            push_text(&mut pieces, &plain, guard);
            plain.clear();
            rest = &rest[mark.len()..];
            pieces.push(match *mark {
                "<|patch|>" => {
                    images += 1;
                    PromptPart::Image(images - 1)
                }
                "<|video|>" => {
                    videos += 1;
                    PromptPart::Video(videos - 1)
                }
                mark => PromptPart::Special(mark),
            });
        }
        plain.push_str(rest);
        push_text(&mut pieces, &plain, guard);
        pieces
    }
}

fn push_text(pieces: &mut Vec<PromptPart>, text: &str, guard: char) {
    if !text.is_empty() {
        pieces.push(PromptPart::Text(text.replace(guard, "")));
    }
}

/// Neighbouring texts are one, as the tokenizer sees them.
fn join(pieces: Vec<PromptPart>) -> Vec<PromptPart> {
    let mut joined: Vec<PromptPart> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match (joined.last_mut(), piece) {
            (Some(PromptPart::Text(last)), PromptPart::Text(text)) => last.push_str(&text),
            (_, piece) => joined.push(piece),
        }
    }
    joined
}

/// The marks of the vocabulary that a template can write: those it spells, and the one it gets as
/// a variable.
fn marks(source: &str, tokenizer: &dyn Tokenizer) -> Vec<&'static str> {
    let mut marks: Vec<&'static str> = vec![crate::mark::BEGIN_OF_TEXT, "<|patch|>", "<|video|>"];
    marks.extend(crate::Mark::ALL.iter().map(|mark| mark.text()));
    let mut rest = source;
    while let Some(at) = rest.find("<|") {
        rest = &rest[at..];
        let Some(end) = rest.find("|>") else { break };
        let spelled = &rest[..end + 2];
        if tokenizer.special_token(spelled).is_some() && !marks.contains(&spelled) {
            // A piece holds marks for the life of the program; a template is read once in it.
            marks.push(Box::leak(spelled.to_owned().into_boxed_str()));
        }
        rest = &rest[2..];
    }
    marks.sort_by_key(|mark| std::cmp::Reverse(mark.len()));
    marks
}

fn refused(error: &minijinja::Error) -> Error {
    let line = error.line().map(|line| format!(" line {line}")).unwrap_or_default();
    Error::Invalid(format!("{NAME}{line}: {error}"))
}

/// What to tell at start about a checkpoint's own template: nothing when it is the one that the
/// native renderer reproduces.
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
