//! Generates without hardware and without the engine: a fake target model and the sampler, pass by
//! pass, first greedily and then at a temperature.

use std::sync::Arc;

use muse_core::Result;
use muse_core::contract::{
    Backend, BatchEntry, BatchInput, BlockTable, History, LogitsRequest, SampleRow, Sampling,
    SeqSlice, TargetModel, Token,
};
use muse_testkit::fake::{FakeBackend, FakeModel, FakeOptions, FakeTarget};

fn main() -> Result<()> {
    let prompt: Vec<Token> = (1..=5).map(Token).collect();
    let greedy = generate(&prompt, &Sampling::default(), 12)?;
    println!("greedy:           {greedy:?}");
    let warm = Sampling { temperature: 1.0, top_p: 0.9, seed: 42, ..Sampling::default() };
    println!("temperature 1:    {:?}", generate(&prompt, &warm, 12)?);
    println!("the same seed:    {:?}", generate(&prompt, &warm, 12)?);
    Ok(())
}

/// The completion of a prompt, alone in KV blocks 0 and 1.
fn generate(prompt: &[Token], sampling: &Sampling, count: usize) -> Result<Vec<u32>> {
    let backend = Arc::new(FakeBackend::default());
    let mut target = FakeTarget::new(Arc::clone(&backend), FakeModel::new(FakeOptions::default()))?;
    let (history, blocks) = (History::default(), [0, 1]);
    let blocks = BlockTable { full: &blocks, window: &blocks, window_base: 0 };
    let (mut tokens, mut start, mut sampled) = (prompt.to_vec(), 0, Vec::new());
    while tokens.len() < prompt.len() + count {
        // The prompt in the first pass, one token in each of the others.
        let slice = SeqSlice { start: start as u32, len: tokens.len() - start, blocks };
        let input = BatchInput::Tokens(&tokens[start..]);
        target.forward(&[BatchEntry { slice, input, logits: LogitsRequest::Last }])?;
        start = tokens.len();
        let row = SampleRow {
            row: 0,
            sampling,
            history: &history,
            drafted: &[],
            mask: None,
            position: start as u32,
            logprobs: None,
        };
        sampled.clear();
        backend.sample(target.logits(), &[row], &mut sampled)?;
        tokens.push(sampled[0].token);
    }
    Ok(tokens[prompt.len()..].iter().map(|token| token.0).collect())
}
