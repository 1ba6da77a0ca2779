//! Reads the model that the config.json of a folder describes.

use muse_core::contract::{CheckpointSpec, GenerationDefaults};

use super::folder::HfFolder;
use super::{drafter, generation, text, vision};
use crate::error::Result;
use crate::settings::Settings;

const TARGET: &str = "muse_glimmer";
const ASSISTANT: &str = "muse_glimmer_assistant";

/// The model, and what the conversion of its tensors needs beyond the spec.
pub(crate) struct HfModel {
    pub(crate) spec: CheckpointSpec,
    pub(crate) generation: GenerationDefaults,
    /// The factor on normed queries of a text model; 1 for a drafter.
    pub(crate) qk_scale: f32,
}

impl HfFolder {
    /// Reads the model's settings.
    pub(crate) fn model(&self) -> Result<HfModel> {
        model(self)
    }
}

fn model(folder: &HfFolder) -> Result<HfModel> {
    let config = &folder.config;
    let kind = config.string("model_type")?;
    let kind = kind.ok_or_else(|| config.wrong("model_type", "nothing", TARGET))?;
    config.only("model_type", &[TARGET, ASSISTANT])?;
    if config.has("quantization_config") {
        let expected = "none: use the BF16 checkpoint, or a GGUF file for a quantized model";
        return Err(config.variant("quantization_config", "an object", expected));
    }
    if kind == ASSISTANT {
        let drafter = Some(drafter::spec(config)?);
        let spec = CheckpointSpec { drafter, ..CheckpointSpec::default() };
        return Ok(HfModel { spec, generation: Default::default(), qk_scale: 1.0 });
    }
    let section = config.require_object("text_config")?;
    let mut text = text::spec(&section)?;
    text.image_token = config.token("image_token_id")?;
    let qk_scale = section.positive("qk_scale_factor", 1e6)?;
    let vision = match config.object("vision_config")? {
        Some(section) => {
            let out = text.hidden;
            let spec = vision::spec(config, &section, out)?;
            if let Some(preprocessor) = &folder.preprocessor {
                vision::check_pixels(preprocessor, &spec)?;
            }
            Some(spec)
        }
        None => None,
    };
    let generation = generation::defaults(folder, &section, text.vocab)?;
    let spec = CheckpointSpec { text: Some(text), drafter: None, vision };
    Ok(HfModel { spec, generation, qk_scale })
}
