//! Which model a HuggingFace config.json describes.

use muse_core::contract::CheckpointSpec;

use super::{HfFolder, HfModel, Object, drafter, generation, text, vision};
use crate::error::Result;
use crate::settings::{Settings, most};

const TARGET: &str = "muse_glimmer";
const ASSISTANT: &str = "muse_glimmer_assistant";

/// Settings of the whole model; text and vision have sections of their own.
pub(super) fn model(folder: &HfFolder) -> Result<HfModel> {
    let config = &folder.config;
    let kind = config.text("model_type")?;
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
    let section = config.demand_object("text_config")?;
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

/// The base of the rotary frequencies: newer files have an object, older ones a number.
pub(super) fn rope_theta(section: &Object, kinds: &[&str]) -> Result<f32> {
    const KEY: &str = "rope_parameters";
    match section.object(KEY)? {
        Some(rope) => {
            rope.only("rope_type", kinds)?;
            rope.positive("rope_theta", 1e12)
        }
        None => match section.maybe_positive("rope_theta", 1e12)? {
            Some(theta) => Ok(theta),
            None => Err(section.wrong(KEY, "nothing", "an object with rope_theta")),
        },
    }
}

/// The number of layers.
pub(super) fn layers(section: &Object) -> Result<usize> {
    section.size("num_hidden_layers", most::LAYERS)
}

/// A list with an entry a layer, if it is there.
pub(super) fn layer_list<T>(
    section: &Object,
    key: &str,
    what: &str,
    layers: usize,
    item: impl Fn(&serde_json::Value) -> Option<T>,
) -> Result<Option<Vec<T>>> {
    let list = section.list(key, what, item)?;
    match &list {
        Some(list) if list.len() != layers => {
            let found = format!("a list of {}", list.len());
            Err(section.wrong(key, found, format!("{layers}, one a layer")))
        }
        _ => Ok(list),
    }
}
