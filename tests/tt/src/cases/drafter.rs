//! Steps of `nano`'s drafter through the device's backend: rows of the large model into its store, and
//! blocks over them.

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

use crate::lane::Needs;

use super::sequence::{Sequence, slices};
use super::{Bench, Case, On, Outcome, case, cpu};

/// Rows of two sequences that are kept in turn, over the end of a page; blocks follow each time.
const STEPS: [[usize; 2]; 2] = [[70, 40], [5, 3]];
const PAGES: usize = 8;
/// Rows that are absorbed at once: fewer than are kept.
const MAX_ROWS: usize = 64;
/// Correlation, and error in parts of the largest value.
const BOUNDS: (f64, f32) = (0.999, 0.05);

pub(super) fn cases() -> impl Iterator<Item = Case> {
    [("bf16", None), ("bfp4", Some(BfpPolicy::Bfp4))].into_iter().map(|(name, mix)| {
        let rows = STEPS.as_flattened().iter().sum();
        let run = move |bench: &mut Bench| bench.drafts(mix);
        case(&format!("drafter_{name}"), rows, 768, On::Grid, false, Needs::Backend, run)
            .uncounted()
    })
}

/// What a drafter borrows of the large model, and every score that came of it.
struct Borrowed<B: Backend> {
    backend: Arc<B>,
    embedding: B::Weight,
    output: B::Weight,
    vocab: usize,
    scores: RefCell<Vec<f32>>,
}

impl<B: Backend> EmbeddingAndLmHead<B> for Borrowed<B> {
    fn embed(&self, ids: &[Token], out: &mut B::Buf) -> Result<()> {
        self.backend.embed(&self.embedding, ids, out, 0)
    }

    fn lm_head(&self, hidden: &B::Buf, rows: usize, scores: &mut B::Buf) -> Result<()> {
        self.backend.linear(hidden, rows, &mut [(&self.output, &mut *scores)])?;
        let mut read = vec![0.0; rows * self.vocab];
        self.backend.read(scores, 0, &mut read)?;
        self.scores.borrow_mut().extend(read);
        Ok(())
    }
}

fn tokens(rows: usize) -> Vec<Token> {
    (0..rows).map(|i| Token((i * 37 % 900) as u32)).collect()
}

/// Where rows of each sequence live: those before `step`, or those of it.
fn runs(step: usize) -> [(u32, usize); 2] {
    [0, 1].map(|of| {
        let before: usize = STEPS[..step].iter().map(|rows| rows[of]).sum();
        (before as u32, STEPS[step][of])
    })
}

/// Sizes of a model whose passes have up to `max_num_batched_tokens` tokens.
fn sizes(max_num_batched_tokens: usize) -> ModelSizes {
    ModelSizes {
        kv: KvType::Bf16,
        blocks: BlockCount { full: PAGES, window: PAGES },
        max_num_seqs: STEPS[0].len(),
        max_num_batched_tokens,
        max_logits_rows: 1,
    }
}

/// What the drafter reads of the large model's layers, for all rows of one sequence, then of the
/// other. In BF16, as the device has it.
fn captured_hidden(target: &Checkpoint, layers: &[usize]) -> Result<Vec<f32>> {
    let backend = Arc::new(cpu()?);
    let rows = [0, 1].map(|of| STEPS.iter().map(|rows| rows[of]).sum());
    let total = rows[0] + rows[1];
    let mut model = Model::new(backend.clone(), target, &sizes(total), layers, &mut |_, _| ())?;
    let (sequences, tokens) = (Sequence::all(&rows.map(|rows| (0, rows)), PAGES), tokens(total));
    let spans: Vec<BatchEntry<'_, Cpu>> = slices(&sequences)
        .into_iter()
        .zip([&tokens[..rows[0]], &tokens[rows[0]..]])
        .map(|(slice, ids)| BatchEntry {
            slice,
            input: BatchInput::Tokens(ids),
            logits: LogitsRequest::None,
        })
        .collect();
    model.forward(&spans)?;
    let mut hidden = vec![0.0; total * layers.len() * model.spec().hidden];
    backend.read(model.captured_hidden(), 0, &mut hidden)?;
    Ok(hidden.into_iter().map(|x| half::bf16::from_f32(x).to_f32()).collect())
}

/// Scores of the blocks of all steps.
fn scores<B: Backend>(
    backend: B,
    source: &dyn WeightSource,
    target: &dyn WeightSource,
    captured_hidden: &[f32],
) -> Result<Vec<f32>> {
    let backend = Arc::new(backend);
    let spec = target.spec().text.clone().expect("a text model");
    let load = |name| backend.load(target.weight(name)?);
    let head = Borrowed {
        backend: backend.clone(),
        embedding: load("token_embd.weight")?,
        output: load("output.weight")?,
        vocab: spec.vocab,
        scores: RefCell::default(),
    };
    let sizes = sizes(MAX_ROWS);
    let mut drafter = Dflash::new(backend.clone(), source, &spec, &sizes, &mut |_, _| ())?;
    let rows: usize = STEPS.as_flattened().iter().sum();
    let mut tapped = backend.alloc(rows, captured_hidden.len() / rows)?;
    backend.write(&mut tapped, 0, captured_hidden)?;
    let second: usize = STEPS.iter().map(|rows| rows[0]).sum();
    let mut guesses = vec![Vec::new(); STEPS[0].len()];
    // Pages of the last step hold all earlier ones.
    let ends = runs(STEPS.len() - 1).map(|(start, rows)| (0, start as usize + rows + 16));
    let sequences = Sequence::all(&ends, PAGES);
    for step in 0..STEPS.len() {
        let kept: Vec<ContextSlice<'_>> = runs(step)
            .into_iter()
            .zip(slices(&sequences))
            .zip([0, second])
            .map(|(((start, rows), slice), first)| ContextSlice {
                slice: SeqSlice { start, len: rows, ..slice },
                first_row: first + start as usize,
            })
            .collect();
        drafter.append_context(&kept, &tapped)?;
        let anchors = kept.iter().map(|ContextSlice { slice, .. }| Anchor {
            slice: SeqSlice { start: slice.start + slice.len as u32, len: 1, ..*slice },
            token: Token(7 + step as u32),
            max: drafter.width(),
        });
        let anchors: Vec<Anchor<'_>> = anchors.collect();
        drafter.draft(&anchors, &head, &mut guesses)?;
    }
    Ok(head.scores.into_inner())
}

impl Bench {
    /// Beside exact products of equally rounded matrices.
    fn drafts(&mut self, mix: Option<BfpPolicy>) -> Result<Outcome> {
        let device = self.programs.device().clone();
        let target = Checkpoint::open(&nano_dir().join("target"))?;
        let source = Checkpoint::open(&nano_dir().join("assistant"))?;
        let layers = &source.spec().drafter.as_ref().expect("a drafter").target_layers;
        let captured_hidden = captured_hidden(&target, layers)?;
        let options = TtOptions { device: DeviceOptions::default(), mix, positions: 256 };
        let got = scores(Tt::on(&device, options), &source, &target, &captured_hidden)?;
        let want = match mix {
            None => scores(cpu()?, &source, &target, &captured_hidden)?,
            Some(mix) => {
                let (source, target) =
                    (RoundedWeights::new(&source, mix), RoundedWeights::new(&target, mix));
                scores(cpu()?, &source, &target, &captured_hidden)?
            }
        };
        let (near, far) = BOUNDS;
        Ok(Outcome::near(&got, &want).within(near, far))
    }
}
