//! The plain single run: a row at a time, no engine, no pool, no drafter.

use std::sync::Arc;

use muse_core::contract::{
    Backend, BatchEntry, BatchInput, BlockTable, History, KV_BLOCK_SIZE, LogitsRequest, SampleRow,
    Sampled, SeqSlice, TargetModel, TokenMask,
};
use muse_testkit::fake::{FakeBackend, FakeModel, FakeOptions, FakeTarget};

use super::rig::Ask;

/// What a request says when nothing else runs and nothing is guessed.
pub fn plain(fake: FakeOptions, ask: &Ask) -> Vec<Sampled> {
    let rows = ask.prompt.len() + ask.max_tokens as usize;
    let blocks = rows.div_ceil(KV_BLOCK_SIZE);
    let fake = FakeOptions { full_blocks: blocks, window_blocks: blocks, ..fake };
    let backend = Arc::new(FakeBackend::default());
    let model = FakeModel::new(fake);
    let mut target = FakeTarget::new(Arc::clone(&backend), model).expect("a fake target");
    let blocks: Vec<u32> = (0..blocks as u32).collect();
    let table = BlockTable { full: &blocks, window: &blocks, window_base: 0 };

    let mut constraint = ask.constraint(fake.vocab);
    let mut history =
        History { prompt: ask.prompt.iter().copied().collect(), ..Default::default() };
    let mut tokens = ask.prompt.clone();
    let (mut said, mut start) = (Vec::new(), 0);
    while said.len() < ask.max_tokens as usize {
        for (position, token) in tokens.iter().enumerate().skip(start) {
            let slice = SeqSlice { start: position as u32, len: 1, blocks: table };
            let input = BatchInput::Tokens(std::slice::from_ref(token));
            target
                .forward(&[BatchEntry { slice, input, logits: LogitsRequest::Last }])
                .expect("a pass");
        }
        start = tokens.len();
        let mask = constraint.as_mut().map(|constraint| {
            let mut mask = TokenMask::default();
            constraint.mask(&mut mask).expect("a mask");
            mask
        });
        let row = SampleRow {
            row: 0,
            sampling: &ask.sampling,
            history: &history,
            drafted: &[],
            mask: mask.as_ref(),
            position: start as u32,
            logprobs: ask.logprobs,
        };
        let mut picked = Vec::new();
        backend.sample(target.logits(), &[row], &mut picked).expect("a choice");
        let picked = picked.remove(0);
        let token = picked.token;
        *history.completion.entry(token).or_insert(0) += 1;
        if let Some(constraint) = &mut constraint {
            constraint.accept(token).expect("what the mask allows");
        }
        tokens.push(token);
        said.push(picked);
        if ask.stop.contains(&token) {
            break;
        }
    }
    said
}
