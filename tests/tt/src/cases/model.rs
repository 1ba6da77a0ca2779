//! Layers of `nano` through the device's backend, as the model runs them.

use std::sync::Arc;

use muse_core::Result;
use muse_core::contract::{
    Backend, BatchEntry, BatchInput, BlockCount, BlockTable, CheckpointSpec, GenerationDefaults,
    KvType, LogitsRequest, ModelSizes, SeqSlice, TargetModel, TensorInfo, Token, Vocabulary,
    WeightSource, WeightView,
};
use muse_core::model::{BfpPolicy, Model, RoundedWeights};
use muse_testkit::nano_dir;
use muse_tt::{DeviceOptions, Tt, TtOptions, smoke};
use muse_weights::Checkpoint;

use crate::lane::Needs;

use super::{Bench, Case, On, Outcome, TILE_PRODUCT, case, cpu};

/// A whole number of pages.
const PROMPT: usize = 128;
const BLOCK: usize = 16;
/// The first layer that sees everything is this one; those before it are sliding.
const FULL: usize = 3;
/// Bytes of a tile of BF16.
const TILE_BYTES: u64 = 2048;
/// What layers must come to, beside exact products of the same rounded matrices: correlation, and
/// error in parts of the largest value.
const BOUNDS: (f64, f32) = (0.999, 0.05);
/// The same beside matrices that were not rounded.
const UNROUNDED: (f64, f32) = (0.99, 0.1);

/// Both formats, on all cores: a backend uses what there is.
pub(super) fn cases() -> impl Iterator<Item = Case> {
    let smoke = case("smoke", 32, 32, On::One, false, Needs::Little, Bench::smoke);
    let layers =
        [("bf16", None), ("bfp4", Some(BfpPolicy::Bfp4))].into_iter().map(|(name, mix)| {
            let run = move |bench: &mut Bench| bench.layers(mix);
            let name = format!("layers_{name}");
            case(&name, PROMPT + BLOCK, 256, On::Grid, false, Needs::Backend, run).uncounted()
        });
    layers.chain([smoke])
}

/// The first layers of a checkpoint.
struct Beginning {
    checkpoint: Checkpoint,
    spec: CheckpointSpec,
}

impl Beginning {
    fn of_nano() -> Result<Self> {
        let checkpoint = Checkpoint::open(&nano_dir().join("target"))?;
        let mut spec = checkpoint.spec().clone();
        spec.text.as_mut().expect("a text model").layers.truncate(FULL + 1);
        Ok(Self { checkpoint, spec })
    }
}

impl WeightSource for Beginning {
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

/// Outputs of the first and of the full layer: of a prompt, then of a block that is verified.
fn outputs<B: Backend>(backend: B, source: &dyn WeightSource) -> Result<Vec<Vec<f32>>> {
    let backend = Arc::new(backend);
    let sizes = ModelSizes {
        kv: KvType::Bf16,
        blocks: BlockCount { full: 4, window: 4 },
        max_num_seqs: 1,
        max_num_batched_tokens: PROMPT,
        max_logits_rows: BLOCK,
    };
    let mut model = Model::new(backend.clone(), source, &sizes, &[0, FULL], &mut |_, _| ())?;
    let hidden = model.spec().hidden;
    let tokens: Vec<Token> = (0..PROMPT + BLOCK).map(|i| Token((i * 37 % 900) as u32)).collect();
    let pages = BlockTable { full: &[2, 0, 3], window: &[1, 3, 0], window_base: 0 };
    let mut outputs = Vec::new();
    for (start, rows, scores) in
        [(0, PROMPT, LogitsRequest::Last), (PROMPT, BLOCK, LogitsRequest::All)]
    {
        let slice = SeqSlice { start: start as u32, len: rows, blocks: pages };
        let rows_of = BatchInput::Tokens(&tokens[start..start + rows]);
        model.forward(&[BatchEntry { slice, input: rows_of, logits: scores }])?;
        let mut taps = vec![0.0; rows * 2 * hidden];
        backend.read(model.captured_hidden(), 0, &mut taps)?;
        for layer in 0..2 {
            let of = taps.chunks(hidden).skip(layer).step_by(2);
            outputs.push(of.flatten().copied().collect());
        }
    }
    let mut scores = vec![0.0; BLOCK * model.spec().vocab];
    backend.read(model.logits(), 0, &mut scores)?;
    outputs.push(scores);
    Ok(outputs)
}

impl Bench {
    /// What every device is tried with when it is opened.
    fn smoke(&mut self) -> Result<Outcome> {
        let device = self.programs.device().clone();
        let right = smoke(&device, &mut self.programs).is_ok();
        // Two tiles of BF16, their product, and nothing else.
        (self.due.read, self.due.written) = (2 * TILE_BYTES, TILE_BYTES);
        (self.due.products, self.due.cores) = (TILE_PRODUCT, 1);
        Ok(Outcome::exact(&[f32::from(right)], &[1.0]))
    }

    /// All outputs, the scores included.
    fn layers(&mut self, mix: Option<BfpPolicy>) -> Result<Outcome> {
        let device = self.programs.device().clone();
        let options = TtOptions { device: DeviceOptions::default(), mix, positions: 256 };
        let source = Beginning::of_nano()?;
        let got = outputs(Tt::on(&device, options), &source)?;
        let mut all = Vec::new();
        let mut compare = |want: Vec<Vec<f32>>, (near, far)| {
            let pairs = got.iter().zip(&want);
            all.extend(pairs.map(|(got, want)| Outcome::near(got, want).within(near, far)));
        };
        if let Some(mix) = mix {
            compare(outputs(cpu()?, &RoundedWeights::new(&source, mix))?, BOUNDS);
        }
        compare(outputs(cpu()?, &source)?, if mix.is_some() { UNROUNDED } else { BOUNDS });
        Ok(Outcome::worst(all))
    }
}
