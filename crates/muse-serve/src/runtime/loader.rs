//! Loads a checkpoint onto a device and joins it with drafter, KV pool and engine.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use muse_atem::template_warning;
use muse_core::contract::{Backend, Drafter, Engine, KvOffloadStore, TargetModel, WeightSource};
use muse_core::engine::{self, EngineOptions};
use muse_core::model::RoundedWeights;
use muse_core::{Error, Result};
use muse_kv::{Pool, PoolOptions};

use super::backends::BackendFactory;
use super::chat::ChatFormat;
use super::checkpoints::Checkpoints;
use super::identity::kv_identity;
use super::memory::{MemoryPlan, Sizes};
use super::model_runner::{ModelRunner, SingleSeqRunner};
use super::roofline::PassWork;
use super::{LoadOptions, Loaded, OnFailure, Progress, model_card, models, sampling};
use crate::ModelCard;
use crate::kv_disk::KvDisk;

/// A loaded model whose device type is erased.
pub(super) trait LoadedModel: Send {
    fn runner(&mut self) -> Result<Box<dyn ModelRunner + '_>>;
    fn start(self: Box<Self>, on_failure: OnFailure) -> Result<Arc<dyn Engine>>;
}

/// Loads the model that `options` name on a device of `factory`.
pub(super) fn load<F: BackendFactory>(
    factory: &F,
    options: &LoadOptions,
    progress: &mut Progress<'_>,
) -> Result<Loaded> {
    let files = Checkpoints::open(options)?;
    let rounded = |source| options.weights.map(|policy| RoundedWeights::new(source, policy));
    let rounded_target = rounded(&files.target);
    let source = rounded_target.as_ref().map_or(&files.target as &dyn WeightSource, |w| w);
    let plain_drafter = files.drafter.as_ref().map(|drafter| drafter as &dyn WeightSource);
    let rounded_drafter = plain_drafter.and_then(rounded);
    let drafter_source = rounded_drafter.as_ref().map(|w| w as &dyn WeightSource).or(plain_drafter);

    let text = models::text_spec(&files.name, source)?;
    let backend = Arc::new(factory.open(options)?);
    let sizes = Sizes::fit(&*backend, text, source, drafter_source, options)?;
    // Logged before the long load: should memory run out in it, the plan says why.
    tracing::info!("memory plan: {}", sizes.plan);
    // The drafter is loaded first: one of another model is refused before the long load.
    let drafter = match drafter_source {
        Some(source) => {
            let mut progress = |done, total| progress("loading the drafter", done, total);
            Some(factory.load_drafter(&backend, source, text, &sizes.model(), &mut progress)?)
        }
        None => None,
    };
    let draft_width = drafter.as_ref().map_or(0, |drafter| drafter.width() as u32);
    check_max_draft(options.max_draft, draft_width)?;
    let captured_layers =
        drafter.as_ref().map_or(Vec::new(), |drafter| drafter.captured_layers().to_vec());
    let target = {
        let mut progress = |done, total| progress("loading the model", done, total);
        factory.load_target(&backend, source, &sizes.model(), &captured_layers, &mut progress)?
    };
    let chat = ChatFormat::new(source, options.chat_template.as_deref())?;
    let template_warning = match (&chat.template, &options.chat_template) {
        (Some(_), None) => files.target.chat_template()?.as_deref().and_then(template_warning),
        _ => None,
    };
    files.check_unchanged()?;
    Ok(Loaded {
        card: ModelCard {
            name: files.name.clone(),
            architecture: "muse-glimmer".to_owned(),
            max_positions: sizes.plan.context,
            vocab: text.vocab as u32,
            parameters: model_card::parameters(source),
            formats: model_card::formats(source),
            backend: factory.name().to_owned(),
            draft_width: options.max_draft.unwrap_or(draft_width),
            loaded_at: now(),
        },
        sampling: sampling::defaults(source),
        stop: sampling::stop_tokens(source, chat.tokenizer.as_deref()),
        chat,
        template_warning,
        plan: sizes.plan.clone(),
        work: PassWork::of(source),
        model: Box::new(ModelOnDevice {
            backend,
            target,
            drafter,
            sizes,
            kv_offload: open_kv_disk(factory.name(), &files, options)?,
            prefix_caching: !options.no_prefix_caching,
        }),
    })
}

/// The memory that the model which `options` name takes on a device of `factory`, whatever is free.
pub(super) fn estimate<F: BackendFactory>(
    factory: &F,
    options: &LoadOptions,
) -> Result<MemoryPlan> {
    let files = Checkpoints::open(options)?;
    let text = models::text_spec(&files.name, &files.target)?;
    let drafter = files.drafter.as_ref().map(|drafter| drafter as &dyn WeightSource);
    let sizes = Sizes::estimate(&factory.open(options)?, text, &files.target, drafter, options)?;
    Ok(sizes.plan)
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Refuses more draft tokens than the drafter proposes.
fn check_max_draft(max_draft: Option<u32>, width: u32) -> Result<()> {
    let advice = match (max_draft, width) {
        (Some(1..), 0) => "there is no drafter; name one with --draft".to_owned(),
        (Some(max), _) if max > width => {
            format!("the drafter drafts at most {width} tokens; give 0 to {width}")
        }
        _ => return Ok(()),
    };
    let max = max_draft.unwrap_or_default();
    Err(Error::Invalid(format!("--max-draft is {max}, but {advice}")))
}

/// Opens the folder of KV blocks, if one is named.
fn open_kv_disk(
    backend: &str,
    files: &Checkpoints,
    options: &LoadOptions,
) -> Result<Option<Arc<dyn KvOffloadStore>>> {
    let Some(disk) = &options.kv_disk else { return Ok(None) };
    let (kv, exact, weights) = (options.kv, options.exact, options.weights);
    let device = format!("{backend} {kv:?} {exact} {weights:?}");
    let identity = kv_identity(files.sources(), device)?;
    Ok(Some(Arc::new(KvDisk::open(&disk.folder, disk.max_bytes, identity)?)))
}

/// A model with its drafter on a device, and the sizes they were built with.
struct ModelOnDevice<B: Backend> {
    backend: Arc<B>,
    target: Box<dyn TargetModel<B>>,
    drafter: Option<Box<dyn Drafter<B>>>,
    sizes: Sizes,
    kv_offload: Option<Arc<dyn KvOffloadStore>>,
    prefix_caching: bool,
}

impl<B: Backend> LoadedModel for ModelOnDevice<B> {
    fn runner(&mut self) -> Result<Box<dyn ModelRunner + '_>> {
        Ok(Box::new(SingleSeqRunner::new(&*self.backend, &mut *self.target, self.sizes.pool)?))
    }

    fn start(self: Box<Self>, on_failure: OnFailure) -> Result<Arc<dyn Engine>> {
        let Self { backend, target, drafter, sizes, kv_offload, prefix_caching } = *self;
        // Without prefix caching nothing would load an offloaded block.
        let kv_offload = kv_offload.filter(|_| prefix_caching);
        let pool = Pool::new(PoolOptions {
            prefix_caching,
            offload_root: kv_offload.as_ref().map(|store| store.root()),
            ..sizes.pool
        });
        let options = EngineOptions { on_failure: Some(on_failure), kv_offload, ..sizes.engine };
        Ok(Arc::new(engine::spawn(backend, target, drafter, None, Box::new(pool), options)?))
    }
}
