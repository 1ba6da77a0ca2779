//! The comparisons with the reference outputs: golden tests ask for small differences, mutations
//! for large ones.

use muse_core::Result;
use muse_core::contract::{
    Backend, Drafter, KvPool, LogitsRequest, TargetModel, Token, WeightSource,
};
use muse_testkit::{Golden, max_abs_diff};

use crate::run::{DraftRecord, Pair};

/// How far a text model is from the reference.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextDifference {
    /// Largest difference of a score.
    pub logits: f32,
    /// Largest difference of a hidden value, relative to the largest of its row.
    pub hidden: f32,
    /// Positions whose best token is another.
    pub argmax: usize,
}

/// Runs the prompts of a golden file, `last` naming their logits (`logits_last…`) and `hidden`
/// their hidden states, in one pass each. The pair must tap every layer.
pub fn text<B: Backend>(
    pair: &mut Pair<B>,
    source: &dyn WeightSource,
    golden: &Golden,
    prompts: &[&str],
) -> Result<TextDifference> {
    let mut worst = TextDifference::default();
    for prompt in prompts {
        let ids = golden.tokens(&format!("{prompt}.ids"));
        let run = pair.open(&ids)?;
        pair.pass(&[(&run, &ids, LogitsRequest::All)])?;
        let logits = pair.read_logits(ids.len())?;
        let named = |part: &str| {
            let start = format!("{prompt}.{part}");
            golden.names().into_iter().find(|name| name.starts_with(&start))
        };
        let (_, want) = golden.floats(named("logits_last").expect("logits of every prompt"));
        let got = &logits[logits.len() - want.len()..];
        worst.logits = worst.logits.max(max_abs_diff(got, want));
        let best = pair.best(0..ids.len())?;
        let want = golden.tokens(&format!("{prompt}.argmax"));
        worst.argmax += best.iter().zip(&want).filter(|(a, b)| a != b).count();
        if let Some(name) = named("hidden") {
            let difference = hidden(pair, source, &ids, golden.floats(name))?;
            worst.hidden = worst.hidden.max(difference);
        }
        pair.pool.close(run.seq);
    }
    Ok(worst)
}

/// Compares `[layers + 1, last rows, hidden]`: the normed embedding, the layers' outputs, and in
/// the place of the last layer's output the final norm's.
fn hidden<B: Backend>(
    pair: &Pair<B>,
    source: &dyn WeightSource,
    ids: &[Token],
    (shape, want): &(Vec<usize>, Vec<f32>),
) -> Result<f32> {
    let [entries, last, width] = shape[..] else { panic!("hidden states are {shape:?}") };
    let (rows, layers) = (ids.len(), entries - 1);
    let spec = pair.target.spec();
    let mut captured_hidden = vec![0.0; rows * layers * width];
    pair.backend.read(pair.target.captured_hidden(), 0, &mut captured_hidden)?;
    let root = |row: &[f32]| {
        let mean = row.iter().map(|x| x * x).sum::<f32>() / row.len() as f32;
        (mean + spec.norm_eps).sqrt()
    };
    let embeddings = source.weight("token_embd.weight")?.to_f32();
    let final_norm = source.weight("output_norm.weight")?.to_f32();
    let mut worst = 0.0_f32;
    for entry in 0..entries {
        for row in 0..last {
            let position = rows - last + row;
            let tap =
                |layer: usize| &captured_hidden[(position * layers + layer) * width..][..width];
            let got: Vec<f32> = if entry == 0 {
                let raw = &embeddings[ids[position].0 as usize * width..][..width];
                raw.iter().map(|x| x / root(raw)).collect()
            } else if entry < layers {
                tap(entry - 1).to_vec()
            } else {
                let row = tap(layers - 1);
                row.iter().zip(&final_norm).map(|(x, w)| x / root(row) * w).collect()
            };
            let want = &want[(entry * last + row) * width..][..width];
            let largest = want.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
            worst = worst.max(max_abs_diff(&got, want) / largest);
        }
    }
    Ok(worst)
}

/// How far a drafter is from the reference.
#[derive(Clone, Copy, Debug, Default)]
pub struct DraftDifference {
    /// Largest difference of the target model's hidden states that the drafter reads.
    pub context: f32,
    /// Largest difference of the block's embeddings.
    pub noise: f32,
    /// Largest difference of a hidden state after the final norm.
    pub hidden: f32,
    /// Largest difference of a raw logit.
    pub logits: f32,
    /// Draft tokens that differ.
    pub drafts: usize,
}

impl DraftDifference {
    /// Takes the larger of each.
    fn widen(&mut self, other: Self) {
        self.context = self.context.max(other.context);
        self.noise = self.noise.max(other.noise);
        self.hidden = self.hidden.max(other.hidden);
        self.logits = self.logits.max(other.logits);
        self.drafts += other.drafts;
    }
}

/// A drafted completion beside the reference's.
pub struct DraftTrace {
    /// Over the rounds that the reference noted.
    pub difference: DraftDifference,
    /// Prompt and completion.
    pub tokens: Vec<Token>,
    /// Draft tokens accepted, by round.
    pub accepted: Vec<usize>,
}

/// Follows the reference through at most `rounds` rounds of a drafted completion, greedy and
/// without stop tokens. `norm_embeddings` is the fault of [`DraftRecord::norm_embeddings`].
pub fn draft<B: Backend>(
    pair: &mut Pair<B>,
    golden: &Golden,
    prompt: &str,
    rounds: usize,
    norm_embeddings: Option<f32>,
) -> Result<DraftTrace> {
    let ids = golden.tokens(&format!("{prompt}.ids"));
    let end = golden.tokens(&format!("{prompt}.greedy")).len();
    let width = pair.drafter.as_ref().expect("a drafter").width();
    let mut run = pair.open(&ids)?;
    pair.prefill(&mut run, ids.len())?;
    let (mut difference, mut accepted) = (DraftDifference::default(), Vec::new());
    let mut kept = ids.len();
    // The reference drafts nothing for the very last token.
    while accepted.len() < rounds && run.tokens.len() + 1 < end {
        let name = |part: &str| format!("{prompt}.round{}.{part}", accepted.len());
        if golden.names().contains(&name("context").as_str()) {
            let (shape, want) = golden.floats(&name("context"));
            let mut captured_hidden = vec![0.0; kept * shape[1]];
            pair.backend.read(pair.target.captured_hidden(), 0, &mut captured_hidden)?;
            let context =
                max_abs_diff(&captured_hidden[captured_hidden.len() - want.len()..], want);
            difference.widen(DraftDifference { context, ..DraftDifference::default() });
        }
        let mut record = DraftRecord { norm_embeddings, ..DraftRecord::default() };
        let drafts = pair.draft(&run, width, &mut record)?;
        if golden.names().contains(&name("draft").as_str()) {
            difference.widen(block(&record, &drafts, golden, &name));
        }
        accepted.push(pair.verify(&mut run, &drafts)?);
        kept = accepted[accepted.len() - 1] + 1;
    }
    if run.tokens.len() < end && accepted.len() < rounds {
        pair.verify(&mut run, &[])?;
    }
    run.tokens.truncate(end);
    pair.pool.close(run.seq);
    Ok(DraftTrace { difference, tokens: run.tokens, accepted })
}

fn block(
    record: &DraftRecord,
    drafts: &[Token],
    golden: &Golden,
    name: &impl Fn(&str) -> String,
) -> DraftDifference {
    let mut difference = DraftDifference::default();
    if golden.names().contains(&name("noise").as_str()) {
        let (_, want) = golden.floats(&name("noise"));
        difference.noise = max_abs_diff(&record.noise[..want.len()], want);
    }
    // Row 0 is the anchor's own, which drafts nothing.
    let (shape, want) = golden.floats(&name("hidden"));
    difference.hidden = max_abs_diff(&record.hidden, &want[shape[1]..]);
    let (shape, want) = golden.floats(&name("logits"));
    let vocab = shape[1];
    let step = if shape[0] == drafts.len() { 1 } else { 7 };
    let got: Vec<f32> = record.logits.chunks(vocab).step_by(step).flatten().copied().collect();
    difference.logits = max_abs_diff(&got, want);
    let want = golden.tokens(&name("draft"));
    difference.drafts = drafts.iter().zip(&want).filter(|(a, b)| a != b).count();
    difference
}
