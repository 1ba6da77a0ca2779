//! A compiled template and its bounds.

use minijinja::machinery::parse;
use minijinja::{Environment, ErrorKind};
use muse_core::{Error, Result};

use super::{check, environment, rewrite};
use crate::json::Json;

const NAME: &str = "chat template";

/// What rendering may take: about one for every instruction and for every 64 bytes that are made,
/// so that no template runs for seconds or makes gigabytes.
const FUEL: u64 = 3_000_000;

/// The longest source.
const MAX_SOURCE_BYTES: usize = 1 << 20;

/// A template that can be rendered.
pub(super) struct CompiledTemplate {
    environment: Environment<'static>,
}

impl CompiledTemplate {
    /// Compiles a source.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the line when it is no template, or names a filter, test, tag,
    /// function or method that there is not.
    pub(super) fn new(source: &str) -> Result<Self> {
        if source.len() > MAX_SOURCE_BYTES {
            let found = source.len();
            return Err(Error::Invalid(format!(
                "{NAME}: has {found} bytes, at most {MAX_SOURCE_BYTES}"
            )));
        }
        Self::compile(source).map_err(|error| invalid(&error))
    }

    fn compile(source: &str) -> std::result::Result<Self, minijinja::Error> {
        let syntax = environment::syntax();
        // A template file ends with one line break that Jinja leaves out.
        let source = source.strip_suffix('\n').unwrap_or(source);
        let source = rewrite::generation_blocks(source, &syntax)?;
        let mut environment = environment::transformers();
        let rewritten = {
            let template = parse(&source, NAME, syntax.clone())?;
            check::names(&template, &environment)?;
            rewrite::operators(&source, &template, &syntax)?
        };
        environment.add_template_owned(NAME, rewritten)?;
        environment.set_fuel(Some(FUEL));
        Ok(Self { environment })
    }

    /// Renders with keyword arguments.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the line where the template raises or cannot go on.
    pub(super) fn render(&self, arguments: &Json) -> Result<String> {
        let template = self.environment.get_template(NAME).map_err(|error| invalid(&error))?;
        template.render(environment::value(arguments)).map_err(|error| invalid(&error))
    }
}

fn invalid(error: &minijinja::Error) -> Error {
    let line = error.line().map(|line| format!(" line {line}")).unwrap_or_default();
    let what = match error.kind() {
        ErrorKind::OutOfFuel => "takes more work than a template may; it may not end".to_owned(),
        kind => match error.detail() {
            // Whoever wrote the template wrote this message, too.
            Some(detail) => detail.to_owned(),
            None => kind.to_string(),
        },
    };
    Error::Invalid(format!("{NAME}{line}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What transformers renders; see `tests/golden/produce/chat_templates.py`.
    #[test]
    fn snippets_render_as_in_transformers() {
        let file = muse_testkit::golden_dir().join("atem/chat_templates.json");
        let goldens = Json::parse(&std::fs::read_to_string(file).unwrap()).unwrap();
        let context = goldens.member("context").unwrap();
        let cases = goldens.member("cases").unwrap().as_array().unwrap();
        assert!(cases.len() >= 150, "only {} snippets", cases.len());
        let mut failed = Vec::new();
        for case in cases {
            let source = case.member("template").unwrap().as_str().unwrap();
            let found = CompiledTemplate::new(source).and_then(|template| template.render(context));
            match (case.member("text").and_then(Json::as_str), found) {
                (Some(text), Ok(found)) if found == text => {}
                (None, Err(_)) => {}
                (expect, found) => {
                    failed.push(format!("{source}\n  found  {found:?}\n  expect {expect:?}"))
                }
            }
        }
        assert!(
            failed.is_empty(),
            "{} of {} differ:\n{}",
            failed.len(),
            cases.len(),
            failed.join("\n")
        );
    }
}
