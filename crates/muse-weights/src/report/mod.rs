//! Describes a checkpoint for people, also one that cannot run, with the reason.

mod display;

use std::collections::BTreeMap;
use std::path::Path;

use muse_core::contract::{CheckpointSpec, GenerationDefaults};
use serde_json::Value;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::files::Files;
use crate::folder::SourceFile;
use crate::gguf::GgufFiles;
use crate::hf::HfFolder;
use crate::raw::RawTensor;
use crate::settings::Settings;

/// A description of a checkpoint.
#[derive(Clone, Debug)]
pub struct Report {
    /// The path that was inspected.
    pub path: String,
    /// Kind, version and number of files.
    pub container: String,
    /// The architecture in the file's words; empty when it names none.
    pub architecture: String,
    /// The models in it, if the settings are sound.
    pub spec: Option<CheckpointSpec>,
    /// Its sampling defaults and stop tokens, if the settings are sound.
    pub generation: Option<GenerationDefaults>,
    /// The formats of the tensors, the one with the most bytes first.
    pub formats: Vec<FormatShare>,
    /// The tokenizer, if there is one.
    pub tokenizer: Option<TokenizerSummary>,
    /// What is missing or unusual.
    pub notes: Vec<String>,
    /// Why it cannot run.
    pub problem: Option<Error>,
}

/// The tensors of one format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatShare {
    /// Name of the format.
    pub format: String,
    /// Number of tensors.
    pub tensors: usize,
    /// Number of their values.
    pub parameters: u64,
    /// Bytes of their values.
    pub bytes: u64,
}

/// A summary of a tokenizer file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizerSummary {
    /// Kind of model, and the pre-tokenizer where it has a name.
    pub kind: String,
    /// Number of tokens.
    pub tokens: usize,
    /// Number of merge rules.
    pub merges: usize,
    /// Special tokens by role.
    pub special: Vec<(&'static str, u64)>,
    /// Bytes of the chat template.
    pub chat_template: Option<usize>,
}

/// Describes the checkpoint at a path.
///
/// # Errors
/// When the path or the container cannot be read. A sound container that cannot run gives a report
/// with a [`Report::problem`].
pub fn inspect(path: &Path) -> Result<Report> {
    let files = Files::open(path)?;
    let mut report = match &files {
        Files::HuggingFace(folder) => describe_folder(folder),
        Files::Gguf(gguf) => describe_gguf(gguf),
    };
    report.path = path.display().to_string();
    match Checkpoint::build(files) {
        Ok(checkpoint) => {
            let ignored = checkpoint.ignored();
            if !ignored.is_empty() {
                report.notes.push(format!(
                    "{} tensors without effect are ignored, such as `{}`",
                    ignored.len(),
                    crate::error::escaped(&ignored[0]),
                ));
            }
        }
        Err(problem) => report.problem = Some(problem),
    }
    report.note_missing();
    Ok(report)
}

fn describe_folder(folder: &HfFolder) -> Report {
    let model = folder.model().ok();
    let architecture = folder.config.string("model_type").ok().flatten().unwrap_or_default();
    let mut tokenizer = folder.tokenizer.as_ref().map(tokenizer_json);
    if let Some(tokenizer) = &mut tokenizer {
        tokenizer.chat_template = folder.chat_template.as_ref().map(String::len);
    }
    let mut notes = Vec::new();
    if folder.generation.is_none() {
        notes.push("no generation_config.json: the server's sampling defaults apply".to_owned());
    }
    let (spec, generation) = model.map(|model| (model.spec, model.generation)).unzip();
    Report {
        path: String::new(),
        container: format!(
            "HuggingFace folder, {}",
            counted(folder.files.len(), "safetensors file")
        ),
        architecture,
        spec,
        generation,
        formats: formats(&folder.tensors),
        tokenizer,
        notes,
        problem: None,
    }
}

fn describe_gguf(gguf: &GgufFiles) -> Report {
    let keys = gguf.keys();
    let (spec, generation) = gguf.model().ok().map(|model| (model.spec, model.generation)).unzip();
    let count = counted(gguf.files.len(), "file");
    Report {
        path: String::new(),
        container: format!("GGUF version {}, {count}", gguf.header.version),
        architecture: keys.string("general.architecture").ok().flatten().unwrap_or_default(),
        spec,
        generation,
        formats: formats(&gguf.tensors),
        tokenizer: tokenizer_keys(gguf),
        notes: Vec::new(),
        problem: None,
    }
}

fn formats(tensors: &[RawTensor]) -> Vec<FormatShare> {
    let mut by_name: BTreeMap<&str, (usize, u64, u64)> = BTreeMap::new();
    for tensor in tensors {
        let share = by_name.entry(tensor.encoding.name()).or_default();
        share.0 += 1;
        share.1 += tensor.shape.iter().product::<usize>() as u64;
        share.2 += tensor.range.len() as u64;
    }
    let share = |(format, (tensors, parameters, bytes)): (&str, _)| FormatShare {
        format: format.to_owned(),
        tensors,
        parameters,
        bytes,
    };
    let mut shares: Vec<FormatShare> = by_name.into_iter().map(share).collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    shares
}

fn tokenizer_json(file: &SourceFile) -> TokenizerSummary {
    let text = file.text().unwrap_or_default();
    let Ok(json) = serde_json::from_slice::<Value>(text) else {
        return TokenizerSummary {
            kind: "tokenizer.json, not JSON".to_owned(),
            ..Default::default()
        };
    };
    let model = &json["model"];
    let vocabulary = model["vocab"].as_object().map_or(0, |vocab| vocab.len());
    let added = json["added_tokens"].as_array().map_or(&[][..], Vec::as_slice);
    // Some files list the special tokens in the vocabulary too.
    let apart = |token: &&Value| {
        token["content"].as_str().is_some_and(|text| model["vocab"].get(text).is_none())
    };
    let special = |(role, text): (&'static str, &str)| {
        let token = added.iter().find(|token| token["content"] == text)?;
        Some((role, token["id"].as_u64()?))
    };
    let roles = [("bos", "<|begin_of_text|>"), ("eos", "<|end_of_text|>"), ("eot", "<|eot|>")];
    TokenizerSummary {
        kind: format!("tokenizer.json, {}", model["type"].as_str().unwrap_or("no model type")),
        tokens: vocabulary + added.iter().filter(apart).count(),
        merges: model["merges"].as_array().map_or(0, Vec::len),
        special: roles.into_iter().filter_map(special).collect(),
        chat_template: None,
    }
}

fn tokenizer_keys(gguf: &GgufFiles) -> Option<TokenizerSummary> {
    let keys = gguf.keys();
    let text = |key: &str| keys.string(key).ok().flatten();
    let count = |key: &str| keys.strings(key).ok().flatten().map_or(0, |texts| texts.len());
    let special = |(role, key): (&'static str, &str)| {
        let key = format!("tokenizer.ggml.{key}_token_id");
        Some((role, keys.integer(&key).ok().flatten()?))
    };
    let roles = [("bos", "bos"), ("eos", "eos"), ("eot", "eot"), ("mask", "mask")];
    Some(TokenizerSummary {
        kind: format!(
            "{}, pre-tokenizer {}",
            text("tokenizer.ggml.model")?,
            text("tokenizer.ggml.pre").as_deref().unwrap_or("not named"),
        ),
        tokens: count("tokenizer.ggml.tokens"),
        merges: count("tokenizer.ggml.merges"),
        special: roles.into_iter().filter_map(special).collect(),
        chat_template: text("tokenizer.chat_template").map(|template| template.len()),
    })
}

impl Report {
    /// Number of values of all tensors.
    pub fn parameters(&self) -> u64 {
        self.formats.iter().map(|share| share.parameters).sum()
    }

    /// Bytes of all tensors.
    pub fn bytes(&self) -> u64 {
        self.formats.iter().map(|share| share.bytes).sum()
    }

    fn note_missing(&mut self) {
        let Some(spec) = &self.spec else { return };
        if spec.text.is_some() {
            match &self.tokenizer {
                None => self.notes.push("no tokenizer: token ids only, no chat".to_owned()),
                Some(tokenizer) if tokenizer.chat_template.is_none() => self.notes.push(
                    "no chat template: the built-in renderer of the chat format is used".to_owned(),
                ),
                Some(_) => {}
            }
            if spec.vision.is_none() {
                self.notes.push("no vision tower: images need a projector file".to_owned());
            }
        }
        if spec.drafter.is_some() {
            self.notes.push("a drafter: it needs the target model it was trained for".to_owned());
        }
    }
}

fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
