//! Opens a HuggingFace folder: config.json, safetensors in one file or in shards, and the files
//! beside them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::object::Object;
use crate::error::{Error, Result, escaped};
use crate::folder::{Folder, SourceFile};
use crate::raw::{RawTensor, refuse_duplicates};
use crate::safetensors;
use crate::settings::Settings;

/// The files of a folder and their tensors.
pub(crate) struct HfFolder {
    /// The folder's name in messages.
    pub(crate) path: String,
    /// The weight files.
    pub(crate) files: Vec<SourceFile>,
    pub(crate) tensors: Vec<RawTensor>,
    /// config.json.
    pub(crate) config: Object,
    pub(crate) generation: Option<Object>,
    pub(crate) preprocessor: Option<Object>,
    pub(crate) tokenizer: Option<SourceFile>,
    /// The chat template, if there is one.
    pub(crate) chat_template: Option<String>,
}

impl HfFolder {
    pub(crate) fn open(mut folder: Folder) -> Result<Self> {
        let config = folder.require("config.json", "it describes the model");
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
}

fn chat_template(folder: &mut Folder) -> Result<Option<String>> {
    if let Some(file) = folder.take("chat_template.jinja")? {
        return Ok(Some(String::from_utf8_lossy(file.text()?).into_owned()));
    }
    let Some(file) = folder.take("tokenizer_config.json")? else { return Ok(None) };
    // The template is optional, and some files hold an array of templates: neither is an error.
    let template = Object::parse(&file).and_then(|config| config.string("chat_template"));
    Ok(template.ok().flatten())
}

/// The error for a missing file, or one that names the GGUF files the folder holds instead.
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
            expected: format!("the path of one of them, such as `{}`", escaped(first)),
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
        location: "weight_map".to_owned(),
        found,
        expected: expected.to_owned(),
    };
    let index: Index = serde_json::from_slice(index_file.text()?)
        .map_err(|error| malformed(error.to_string(), "file names by tensor name"))?;
    let names: BTreeSet<&String> = index.weight_map.values().collect();
    let (mut files, mut tensors) = (Vec::new(), Vec::new());
    for name in names {
        if name.contains(['/', '\\', '\0']) || !name.ends_with(".safetensors") {
            let found = format!("the file name `{}`", escaped(name));
            return Err(malformed(found, "names of safetensors files in the same folder"));
        }
        let file = folder.require(name, "model.safetensors.index.json names it as a shard")?;
        let found = safetensors::tensors(&file, files.len())?;
        if let Some(stray) =
            found.iter().find(|found| index.weight_map.get(&found.name) != Some(name))
        {
            return Err(Error::Tensor {
                file: file.name,
                tensor: escaped(&stray.name),
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
        let found = format!("tensor `{}`", escaped(missing));
        return Err(malformed(found, "only tensors that the named shards hold"));
    }
    Ok((files, tensors))
}
