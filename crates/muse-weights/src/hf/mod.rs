//! A HuggingFace folder: config.json, safetensors in one file or in shards, and the files beside.

mod config;
mod drafter;
mod generation;
mod object;
mod text;
mod vision;

use std::collections::{BTreeMap, BTreeSet};

use muse_core::contract::{CheckpointSpec, GenerationDefaults};
use serde::Deserialize;

use crate::error::{Error, Result, shown};
use crate::folder::{Folder, SourceFile};
use crate::raw::{RawTensor, refuse_duplicates};
use crate::safetensors;
use crate::settings::Settings;

pub(crate) use object::Object;
pub(crate) use vision::default_full_layers;

/// A folder's files with their tensors.
pub(crate) struct HfFolder {
    /// How messages call the folder.
    pub(crate) path: String,
    /// The weight files.
    pub(crate) files: Vec<SourceFile>,
    pub(crate) tensors: Vec<RawTensor>,
    /// config.json.
    pub(crate) config: Object,
    pub(crate) generation: Option<Object>,
    pub(crate) preprocessor: Option<Object>,
    pub(crate) tokenizer: Option<SourceFile>,
    /// The chat template, if the folder has one.
    pub(crate) chat_template: Option<String>,
}

/// What config.json says, beyond the spec, about how tensors become canonical.
pub(crate) struct HfModel {
    pub(crate) spec: CheckpointSpec,
    pub(crate) generation: GenerationDefaults,
    /// The factor on normed queries; a text model has one.
    pub(crate) qk_scale: f32,
}

impl HfFolder {
    pub(crate) fn open(mut folder: Folder) -> Result<Self> {
        let config = folder.demand("config.json", "it says what the model is");
        let config = config.map_err(|error| or_gguf(&folder, error))?;
        let (files, tensors) = weights(&mut folder)?;
        let chat_template = chat_template(&mut folder)?;
        let mut object = |name: &str| -> Result<Option<Object>> {
            folder.take(name)?.map(|file| Object::parse(&file)).transpose()
        };
        Ok(Self {
            config: Object::parse(&config)?,
            generation: object("generation_config.json")?,
            preprocessor: object("preprocessor_config.json")?,
            tokenizer: folder.take("tokenizer.json")?,
            chat_template,
            path: folder.path(),
            files,
            tensors,
        })
    }

    /// What the configuration says.
    pub(crate) fn model(&self) -> Result<HfModel> {
        config::model(self)
    }
}

fn chat_template(folder: &mut Folder) -> Result<Option<String>> {
    if let Some(file) = folder.take("chat_template.jinja")? {
        return Ok(Some(String::from_utf8_lossy(&file.bytes).into_owned()));
    }
    let Some(file) = folder.take("tokenizer_config.json")? else { return Ok(None) };
    // Nothing here renders it, and some files hold a list of templates: nothing to refuse one for.
    let template = Object::parse(&file).and_then(|config| config.text("chat_template"));
    Ok(template.ok().flatten())
}

/// Says so when a folder that lacks a file holds GGUF files instead.
fn or_gguf(folder: &Folder, error: Error) -> Error {
    let names = folder.names();
    let gguf: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| name.to_ascii_lowercase().ends_with(".gguf"))
        .collect();
    match gguf.first() {
        Some(first) => Error::NotACheckpoint {
            path: folder.path(),
            found: format!("no safetensors checkpoint, but {} GGUF files", gguf.len()),
            expected: format!("the path of one of them, such as `{}`", shown(first)),
        },
        None => error,
    }
}

/// model.safetensors.index.json.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

fn weights(folder: &mut Folder) -> Result<(Vec<SourceFile>, Vec<RawTensor>)> {
    if let Some(file) = folder.take("model.safetensors")? {
        let tensors = safetensors::tensors(&file, 0)?;
        return Ok((vec![file], tensors));
    }
    let Some(index) = folder.take("model.safetensors.index.json")? else {
        let names = folder.names();
        let pickled = names.iter().any(|name| name.ends_with(".bin") || name.ends_with(".pth"));
        let found = if pickled { "only pickled weights" } else { "no weights" };
        let error = Error::NotACheckpoint {
            path: folder.path(),
            found: found.to_owned(),
            expected: "model.safetensors, or model.safetensors.index.json with its shards"
                .to_owned(),
        };
        return Err(or_gguf(folder, error));
    };
    shards(folder, &index)
}

fn shards(
    folder: &mut Folder,
    index_file: &SourceFile,
) -> Result<(Vec<SourceFile>, Vec<RawTensor>)> {
    let malformed = |found: String, expected: &str| Error::Malformed {
        file: index_file.name.clone(),
        place: "weight_map".to_owned(),
        found,
        expected: expected.to_owned(),
    };
    let index: Index = serde_json::from_slice(&index_file.bytes)
        .map_err(|error| malformed(error.to_string(), "file names by tensor name"))?;
    let names: BTreeSet<&String> = index.weight_map.values().collect();
    let (mut files, mut tensors) = (Vec::new(), Vec::new());
    for name in names {
        if name.contains(['/', '\\', '\0']) || !name.ends_with(".safetensors") {
            let found = format!("the file name `{}`", shown(name));
            return Err(malformed(found, "names of safetensors files in the same folder"));
        }
        let file = folder.demand(name, "model.safetensors.index.json names it as a shard")?;
        let found = safetensors::tensors(&file, files.len())?;
        if let Some(stray) =
            found.iter().find(|found| index.weight_map.get(&found.name) != Some(name))
        {
            return Err(Error::Tensor {
                file: file.name,
                tensor: shown(&stray.name),
                found: "it in this shard".to_owned(),
                expected: "the shard that model.safetensors.index.json names".to_owned(),
            });
        }
        tensors.extend(found);
        files.push(file);
    }
    refuse_duplicates(&index_file.name, &tensors)?;
    if tensors.len() != index.weight_map.len() {
        let missing = index
            .weight_map
            .keys()
            .find(|&name| !tensors.iter().any(|tensor| &tensor.name == name))
            .map_or("", String::as_str);
        let found = format!("tensor `{}`", shown(missing));
        return Err(malformed(found, "only tensors that the named shards hold"));
    }
    Ok((files, tensors))
}
