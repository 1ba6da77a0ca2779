//! Which model and which drafter a checkpoint holds. Another kind of either is one arm here.

use std::sync::Arc;

use muse_core::contract::{
    Backend, Drafter, DrafterSpec, Footprint, ModelSizes, TargetModel, TextSpec, WeightSource,
};
use muse_core::model::{Model, ModelFootprint};
use muse_core::{Error, Result};
use muse_dflash::{Dflash, DflashFootprint};

use super::backends::TensorProgress;

/// The text model of a checkpoint, on any backend.
///
/// # Errors
/// As [`Model::new`].
pub(super) fn target<B: Backend>(
    backend: &Arc<B>,
    source: &dyn WeightSource,
    sizes: &ModelSizes,
    captured_layers: &[usize],
    progress: &mut TensorProgress<'_>,
) -> Result<Box<dyn TargetModel<B>>> {
    Ok(Box::new(Model::new(Arc::clone(backend), source, sizes, captured_layers, progress)?))
}

/// The drafter of a checkpoint for `target`, on any backend.
///
/// # Errors
/// As [`Dflash::new`].
pub(super) fn drafter<B: Backend>(
    backend: &Arc<B>,
    source: &dyn WeightSource,
    target: &TextSpec,
    sizes: &ModelSizes,
    progress: &mut TensorProgress<'_>,
) -> Result<Box<dyn Drafter<B>>> {
    Ok(Box::new(Dflash::new(Arc::clone(backend), source, target, sizes, progress)?))
}

/// The text model's description.
pub(super) fn text_spec<'a>(name: &str, source: &'a dyn WeightSource) -> Result<&'a TextSpec> {
    source.spec().text.as_ref().ok_or_else(|| {
        Error::Invalid(format!(
            "{name} holds no text model; name a Muse-Glimmer folder or GGUF file, not its drafter \
             or its vision file"
        ))
    })
}

/// What model and drafter take of a device beside their weights.
pub(super) struct Footprints<'a> {
    pub(super) target: Box<dyn Footprint + 'a>,
    pub(super) drafter: Option<Box<dyn Footprint + 'a>>,
    /// Tokens of a draft block, the anchor included; 0 without a drafter.
    pub(super) draft_block: usize,
}

impl<'a> Footprints<'a> {
    pub(super) fn new(text: &'a TextSpec, drafter: Option<&'a DrafterSpec>) -> Self {
        let captured_layers = drafter.map_or(0, |spec| spec.target_layers.len());
        let vocab = text.vocab;
        Self {
            target: Box::new(ModelFootprint { spec: text, captured_layers }),
            drafter: drafter.map(|spec| Box::new(DflashFootprint { spec, vocab }) as _),
            draft_block: drafter.map_or(0, |spec| spec.draft_block),
        }
    }
}
