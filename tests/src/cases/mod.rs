//! Runs protocol cases (`tests/golden/atem/cases.jsonl`): what a model generated against the
//! expected events, and what a client sent against the expected prompt.

mod answer;
mod prompt;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use muse_atem::Tokenizer;
use muse_core::contract::Vocabulary;
use serde_json::Value;

pub use answer::{Answer, Input, inputs, parse, parse_tokens};

/// A case of a file.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, unique in the file.
    pub id: String,
    /// What it is about.
    pub kind: String,
    /// The input.
    pub given: Value,
    /// Tools of the request.
    pub tools: Value,
    /// The expected result.
    pub expect: Value,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As expected.
    Passed,
    /// Otherwise; says how.
    Failed(String),
    /// Not run; says why.
    Skipped(String),
}

/// Reads the cases of a file.
///
/// # Errors
/// The file cannot be read, or a line is no case.
pub fn read(file: &Path) -> anyhow::Result<Vec<Case>> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let cases = lines.map(|(i, line)| {
        let mut value: Value = serde_json::from_str(line)
            .with_context(|| format!("{}:{}: not JSON", file.display(), i + 1))?;
        let text = |key: &str| match value[key].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => bail!("{}:{}: no `{key}`", file.display(), i + 1),
        };
        Ok(Case {
            id: text("id")?,
            kind: text("kind")?,
            given: value["given"].take(),
            tools: value["tools"].take(),
            expect: value["expect"].take(),
        })
    });
    cases.collect()
}

/// Runs one case.
pub fn run(case: &Case, tokenizer: &Arc<Tokenizer>) -> Outcome {
    match case.given["type"].as_str().unwrap_or_default() {
        "text" | "chunks" | "bytes" | "pieces" => answer::run(case, tokenizer),
        "template" => prompt::run_template(case),
        "request" => prompt::run_request(case),
        "scenario" => {
            Outcome::Skipped("a scenario in words; see the test named after it".to_owned())
        }
        other => Outcome::Failed(format!("given.type `{other}` is unknown to this runner")),
    }
}

/// The tokenizer of the embedded checkpoint.
///
/// # Errors
/// It cannot be read.
pub fn nano_tokenizer() -> anyhow::Result<Arc<Tokenizer>> {
    let file = muse_testkit::nano_dir().join("target/tokenizer.json");
    let json = std::fs::read(&file).with_context(|| file.display().to_string())?;
    Ok(Tokenizer::new(Vocabulary::HuggingFace(json))?)
}

fn difference(what: &str, found: &impl std::fmt::Debug, expected: &impl std::fmt::Debug) -> String {
    format!("{what}\n     found {found:?}\n  expected {expected:?}")
}
