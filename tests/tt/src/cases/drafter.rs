//! Steps of the drafter of `nano` on the backend of the device: hidden states of the target model
//! into its context, and draft blocks on top of it.

use std::cell::RefCell;
use std::sync::Arc;

use muse_core::Result;
use muse_core::contract::{
    Anchor, Backend, BatchEntry, BatchInput, BlockCount, ContextSlice, Drafter, EmbeddingAndLmHead,
    KvType, LogitsRequest, ModelSizes, SeqSlice, TargetModel, Token, WeightSource,
};
use muse_core::model::{BfpPolicy, Model, RoundedWeights};
use muse_cpu::Cpu;
use muse_dflash::Dflash;
use muse_testkit::nano_dir;
use muse_tt::{DeviceOptions, Tt, TtOptions};
use muse_weights::Checkpoint;

use crate::lane::Requirement;

use super::sequence::{Sequence, slices};
use super::{Case, CoreSet, Harness, Outcome, case, cpu};

/// Tokens of two sequences whose context is appended in each step, across the end of a KV block. A
/// draft block follows each time.
const STEPS: [[usize; 2]; 2] = [[70, 40], [5, 3]];
const BLOCKS: usize = 8;
/// Rows of a forward pass of the drafter: fewer than a step appends.
const MAX_NUM_BATCHED_TOKENS: usize = 64;
/// Minimum correlation, and maximum error relative to the largest value.
const BOUNDS: (f64, f32) = (0.999, 0.05);

pub(super) fn cases() -> impl Iterator<Item = Case> {
    [("bf16", None), ("bfp4", Some(BfpPolicy::Bfp4))].into_iter().map(|(name, bfp_policy)| {
        let rows = STEPS.as_flattened().iter().sum();
        let run = move |harness: &mut Harness| harness.drafts(bfp_policy);
        case(&format!("drafter_{name}"), rows, 768, CoreSet::Grid, false, Requirement::Backend, run)
            .without_cost()
    })
}

/// The embedding and LM head of the target model, which records all logits.
struct RecordingHead<B: Backend> {
    backend: Arc<B>,
    embedding: B::Weight,
    output: B::Weight,
    vocab: usize,
    logits: RefCell<Vec<f32>>,
}

impl<B: Backend> EmbeddingAndLmHead<B> for RecordingHead<B> {
    fn embed(&self, ids: &[Token], out: &mut B::Buf) -> Result<()> {
        self.backend.embed(&self.embedding, ids, out, 0)
    }

    fn lm_head(&self, hidden: &B::Buf, rows: usize, logits: &mut B::Buf) -> Result<()> {
        self.backend.linear(hidden, rows, &mut [(&self.output, &mut *logits)])?;
        let mut read = vec![0.0; rows * self.vocab];
        self.backend.read(logits, 0, &mut read)?;
        self.logits.borrow_mut().extend(read);
        Ok(())
    }
}

fn tokens(rows: usize) -> Vec<Token> {
    (0..rows).map(|i| Token((i * 37 % 900) as u32)).collect()
}

/// First position and number of tokens of each sequence in `step`.
fn runs(step: usize) -> [(u32, usize); 2] {
    [0, 1].map(|sequence| {
        let before: usize = STEPS[..step].iter().map(|tokens| tokens[sequence]).sum();
        (before as u32, STEPS[step][sequence])
    })
}

/// Sizes of a model whose forward passes have up to `max_num_batched_tokens` tokens.
fn sizes(max_num_batched_tokens: usize) -> ModelSizes {
    ModelSizes {
        kv: KvType::Bf16,
        blocks: BlockCount { full: BLOCKS, window: BLOCKS },
        max_num_seqs: STEPS[0].len(),
        max_num_batched_tokens,
        max_logits_rows: 1,
    }
}

/// The captured hidden states of the target model, for all tokens of the first sequence and then of
/// the second one, rounded to BF16 as on the device.
fn captured_hidden(target: &Checkpoint, layers: &[usize]) -> Result<Vec<f32>> {
    let backend = Arc::new(cpu()?);
    let tokens_of = [0, 1].map(|sequence| STEPS.iter().map(|tokens| tokens[sequence]).sum());
    let total = tokens_of[0] + tokens_of[1];
    let mut model = Model::new(backend.clone(), target, &sizes(total), layers, &mut |_, _| ())?;
    let sequences = Sequence::all(&tokens_of.map(|tokens| (0, tokens)), BLOCKS);
    let tokens = tokens(total);
    let batch: Vec<BatchEntry<'_, Cpu>> = slices(&sequences)
        .into_iter()
        .zip([&tokens[..tokens_of[0]], &tokens[tokens_of[0]..]])
        .map(|(slice, ids)| BatchEntry {
            slice,
            input: BatchInput::Tokens(ids),
            logits: LogitsRequest::None,
        })
        .collect();
    model.forward(&batch)?;
    let mut hidden = vec![0.0; total * layers.len() * model.spec().hidden];
    backend.read(model.captured_hidden(), 0, &mut hidden)?;
    Ok(hidden.into_iter().map(|x| half::bf16::from_f32(x).to_f32()).collect())
}

/// The logits of the draft blocks of all steps.
fn draft_logits<B: Backend>(
    backend: B,
    source: &dyn WeightSource,
    target: &dyn WeightSource,
    captured_hidden: &[f32],
) -> Result<Vec<f32>> {
    let backend = Arc::new(backend);
    let spec = target.spec().text.clone().expect("a text model");
    let load = |name| backend.load(target.weight(name)?);
    let head = RecordingHead {
        backend: backend.clone(),
        embedding: load("token_embd.weight")?,
        output: load("output.weight")?,
        vocab: spec.vocab,
        logits: RefCell::default(),
    };
    let sizes = sizes(MAX_NUM_BATCHED_TOKENS);
    let mut drafter = Dflash::new(backend.clone(), source, &spec, &sizes, &mut |_, _| ())?;
    let rows: usize = STEPS.as_flattened().iter().sum();
    let mut hidden = backend.alloc(rows, captured_hidden.len() / rows)?;
    backend.write(&mut hidden, 0, captured_hidden)?;
    let second: usize = STEPS.iter().map(|rows| rows[0]).sum();
    let mut drafts = vec![Vec::new(); STEPS[0].len()];
    // The block tables of the last step cover all steps.
    let ends = runs(STEPS.len() - 1).map(|(start, rows)| (0, start as usize + rows + 16));
    let sequences = Sequence::all(&ends, BLOCKS);
    for step in 0..STEPS.len() {
        let context: Vec<ContextSlice<'_>> = runs(step)
            .into_iter()
            .zip(slices(&sequences))
            .zip([0, second])
            .map(|(((start, rows), slice), first)| ContextSlice {
                slice: SeqSlice { start, len: rows, ..slice },
                first_row: first + start as usize,
            })
            .collect();
        drafter.append_context(&context, &hidden)?;
        let anchors = context.iter().map(|ContextSlice { slice, .. }| Anchor {
            slice: SeqSlice { start: slice.start + slice.len as u32, len: 1, ..*slice },
            token: Token(7 + step as u32),
            max: drafter.width(),
        });
        let anchors: Vec<Anchor<'_>> = anchors.collect();
        drafter.draft(&anchors, &head, &mut drafts)?;
    }
    Ok(head.logits.into_inner())
}

impl Harness {
    /// Compared with exact products of equally rounded weights.
    fn drafts(&mut self, bfp_policy: Option<BfpPolicy>) -> Result<Outcome> {
        let device = self.programs.device().clone();
        let target = Checkpoint::open(&nano_dir().join("target"))?;
        let source = Checkpoint::open(&nano_dir().join("assistant"))?;
        let layers = &source.spec().drafter.as_ref().expect("a drafter").target_layers;
        let captured_hidden = captured_hidden(&target, layers)?;
        let options = TtOptions { device: DeviceOptions::default(), bfp_policy, positions: 256 };
        let actual = draft_logits(Tt::on(&device, options), &source, &target, &captured_hidden)?;
        let reference = match bfp_policy {
            None => draft_logits(cpu()?, &source, &target, &captured_hidden)?,
            Some(policy) => {
                let (source, target) =
                    (RoundedWeights::new(&source, policy), RoundedWeights::new(&target, policy));
                draft_logits(cpu()?, &source, &target, &captured_hidden)?
            }
        };
        let (near, far) = BOUNDS;
        Ok(Outcome::near(&actual, &reference).within(near, far))
    }
}
