//! The first layers of `nano` on the backend of the device.

use std::sync::Arc;

use muse_core::Result;
use muse_core::contract::{
    Backend, BatchEntry, BatchInput, BlockCount, BlockTable, CheckpointSpec, GenerationDefaults,
    KvType, LogitsRequest, ModelSizes, SeqSlice, TargetModel, TensorInfo, Token, Vocabulary,
    WeightSource, WeightView,
};
use muse_core::model::{BfpPolicy, Model, RoundedWeights};
use muse_testkit::nano_dir;
use muse_tt::{DeviceOptions, Tt, TtOptions, smoke_test};
use muse_weights::Checkpoint;

use crate::lane::Requirement;

use super::{Case, CoreSet, Harness, Outcome, TILE_PRODUCT, case, cpu};

/// Tokens of the prompt, two whole KV blocks, and of the verify step behind it.
const PROMPT: usize = 128;
const VERIFY: usize = 16;
/// The first layer with full attention. Those before it have sliding windows.
const FIRST_FULL: usize = 3;
/// Bytes of a BF16 tile.
const TILE_BYTES: u64 = 2048;
/// Bounds against exact products of the same rounded weights: minimum correlation, and maximum
/// error relative to the largest value.
const BOUNDS: (f64, f32) = (0.999, 0.05);
/// The same against weights that were not rounded.
const UNROUNDED_BOUNDS: (f64, f32) = (0.99, 0.1);

/// Both weight formats, on all cores, as a backend uses them.
pub(super) fn cases() -> impl Iterator<Item = Case> {
    let smoke = case("smoke", 32, 32, CoreSet::One, false, Requirement::Basic, Harness::smoke);
    let layers =
        [("bf16", None), ("bfp4", Some(BfpPolicy::Bfp4))].into_iter().map(|(name, bfp_policy)| {
            let run = move |harness: &mut Harness| harness.layers(bfp_policy);
            let name = format!("layers_{name}");
            case(&name, PROMPT + VERIFY, 256, CoreSet::Grid, false, Requirement::Backend, run)
                .without_cost()
        });
    layers.chain([smoke])
}

/// The layers of a checkpoint up to the first one with full attention.
struct FirstLayers {
    checkpoint: Checkpoint,
    spec: CheckpointSpec,
}

impl FirstLayers {
    fn of_nano() -> Result<Self> {
        let checkpoint = Checkpoint::open(&nano_dir().join("target"))?;
        let mut spec = checkpoint.spec().clone();
        spec.text.as_mut().expect("a text model").layers.truncate(FIRST_FULL + 1);
        Ok(Self { checkpoint, spec })
    }
}

impl WeightSource for FirstLayers {
    fn spec(&self) -> &CheckpointSpec {
        &self.spec
    }
    fn generation(&self) -> &GenerationDefaults {
        self.checkpoint.generation()
    }
    fn vocabulary(&self) -> Result<Option<Vocabulary>> {
        self.checkpoint.vocabulary()
    }
    fn tensors(&self) -> &[TensorInfo] {
        self.checkpoint.tensors()
    }
    fn weight(&self, name: &str) -> Result<WeightView<'_>> {
        self.checkpoint.weight(name)
    }
}

/// Hidden states of the first and of the last layer, of a prompt and of a verify step, and the
/// logits of the verify step.
fn outputs<B: Backend>(backend: B, source: &dyn WeightSource) -> Result<Vec<Vec<f32>>> {
    let backend = Arc::new(backend);
    let sizes = ModelSizes {
        kv: KvType::Bf16,
        blocks: BlockCount { full: 4, window: 4 },
        max_num_seqs: 1,
        max_num_batched_tokens: PROMPT,
        max_logits_rows: VERIFY,
    };
    let captured = [0, FIRST_FULL];
    let mut model = Model::new(backend.clone(), source, &sizes, &captured, &mut |_, _| ())?;
    let hidden = model.spec().hidden;
    let tokens: Vec<Token> = (0..PROMPT + VERIFY).map(|i| Token((i * 37 % 900) as u32)).collect();
    let blocks = BlockTable { full: &[2, 0, 3], window: &[1, 3, 0], window_base: 0 };
    let mut outputs = Vec::new();
    for (start, len, logits) in
        [(0, PROMPT, LogitsRequest::Last), (PROMPT, VERIFY, LogitsRequest::All)]
    {
        let slice = SeqSlice { start: start as u32, len, blocks };
        let input = BatchInput::Tokens(&tokens[start..start + len]);
        model.forward(&[BatchEntry { slice, input, logits }])?;
        let mut captured = vec![0.0; len * 2 * hidden];
        backend.read(model.captured_hidden(), 0, &mut captured)?;
        for layer in 0..2 {
            let rows = captured.chunks(hidden).skip(layer).step_by(2);
            outputs.push(rows.flatten().copied().collect());
        }
    }
    let mut logits = vec![0.0; VERIFY * model.spec().vocab];
    backend.read(model.logits(), 0, &mut logits)?;
    outputs.push(logits);
    Ok(outputs)
}

impl Harness {
    /// The smoke test of every opened device.
    fn smoke(&mut self) -> Result<Outcome> {
        let device = self.programs.device().clone();
        let is_right = smoke_test(&device, &mut self.programs).is_ok();
        // Two BF16 tiles and their product.
        (self.expected.read, self.expected.written) = (2 * TILE_BYTES, TILE_BYTES);
        (self.expected.products, self.expected.cores) = (TILE_PRODUCT, 1);
        Ok(Outcome::exact(&[f32::from(is_right)], &[1.0]))
    }

    /// All outputs, logits included.
    fn layers(&mut self, bfp_policy: Option<BfpPolicy>) -> Result<Outcome> {
        let device = self.programs.device().clone();
        let options = TtOptions { device: DeviceOptions::default(), bfp_policy, positions: 256 };
        let source = FirstLayers::of_nano()?;
        let actual = outputs(Tt::on(&device, options), &source)?;
        let mut all = Vec::new();
        let mut compare = |reference: Vec<Vec<f32>>, (near, far)| {
            let pairs = actual.iter().zip(&reference);
            all.extend(
                pairs.map(|(actual, reference)| Outcome::near(actual, reference).within(near, far)),
            );
        };
        if let Some(policy) = bfp_policy {
            compare(outputs(cpu()?, &RoundedWeights::new(&source, policy))?, BOUNDS);
        }
        let bounds = if bfp_policy.is_some() { UNROUNDED_BOUNDS } else { BOUNDS };
        compare(outputs(cpu()?, &source)?, bounds);
        Ok(Outcome::worst(all))
    }
}
