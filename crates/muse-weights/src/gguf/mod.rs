//! Reads GGUF files: a text model, a DFlash drafter or a vision projector, in one file or split.

mod cursor;
mod drafter;
mod ggml;
mod header;
mod imatrix;
mod keys;
mod split;
mod text;
mod vision;
mod vocabulary;

use muse_core::contract::{CheckpointSpec, GenerationDefaults, Vocabulary};

use crate::error::Result;
use crate::folder::{Folder, SourceFile};
use crate::raw::RawTensor;
use crate::settings::Settings;

pub(crate) use ggml::format_id;
pub(crate) use header::{Header, value_type};
pub(crate) use imatrix::ImatrixFile;
pub(crate) use keys::Keys;
pub(crate) use text::POST_NORM_EPS;

/// The files of a model and their tensors.
pub(crate) struct GgufFiles {
    pub(crate) files: Vec<SourceFile>,
    /// The header of the first file, whose keys describe the model.
    pub(crate) header: Header,
    pub(crate) tensors: Vec<RawTensor>,
}

/// The model that the keys describe.
pub(crate) struct GgufModel {
    pub(crate) spec: CheckpointSpec,
    pub(crate) generation: GenerationDefaults,
}

impl GgufFiles {
    pub(crate) fn open(mut folder: Folder, name: &str) -> Result<Self> {
        let (files, header, tensors) = split::open(&mut folder, name)?;
        Ok(Self { files, header, tensors })
    }

    /// The keys, by their full names.
    pub(crate) fn keys(&self) -> Keys<'_> {
        Keys { file: &self.files[0], header: &self.header, prefix: "" }
    }

    /// Reads the model's settings.
    pub(crate) fn model(&self) -> Result<GgufModel> {
        const KEY: &str = "general.architecture";
        let keys = self.keys();
        let expected = "muse-glimmer, dflash or clip";
        let architecture = keys.string(KEY)?.ok_or_else(|| keys.wrong(KEY, "nothing", expected))?;
        let prefix = format!("{architecture}.");
        let named = keys.under(&prefix);
        let (mut spec, mut generation) = (CheckpointSpec::default(), GenerationDefaults::default());
        match architecture.as_str() {
            "muse-glimmer" | "muse_glimmer" => {
                let rows = self.tensors.iter().find(|tensor| tensor.name == "token_embd.weight");
                let rows = rows.and_then(|tensor| tensor.shape.first().copied());
                let mut text = text::spec(named, rows)?;
                let special = vocabulary::special_tokens(keys, text.vocab)?;
                text.image_token = special.image;
                generation.stop = special.stop;
                spec.text = Some(text);
            }
            "dflash" => spec.drafter = Some(drafter::spec(named)?),
            "clip" => spec.vision = Some(vision::spec(named, &self.tensors)?),
            other => {
                let found = format!("`{}`", crate::error::escaped(other));
                return Err(keys.variant(KEY, found, expected));
            }
        }
        Ok(GgufModel { spec, generation })
    }
}

/// The chat template of a file, if it has one.
pub(crate) fn chat_template(file: &SourceFile, header: &Header) -> Result<Option<String>> {
    Keys { file, header, prefix: "" }.string("tokenizer.chat_template")
}

/// The vocabulary of a file, if it has one.
pub(crate) fn vocabulary(file: &SourceFile, header: &Header) -> Result<Option<Vocabulary>> {
    vocabulary::vocabulary(Keys { file, header, prefix: "" })
}
