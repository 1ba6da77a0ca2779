//! The reference run of a request: one token at a time, no engine, no pool, no drafter.

use std::sync::Arc;

use muse_core::contract::{
    Backend, BatchEntry, BatchInput, BlockTable, History, KV_BLOCK_SIZE, LogitsRequest, SampleRow,
    Sampled, SeqSlice, TargetModel, Token, TokenMask,
};
use muse_testkit::fake::{FakeBackend, FakeModel, FakeOptions, FakeTarget, picture_row};

use super::test_engine::{TestRequest, picture_hash};

/// The completion of a request that runs alone without drafting.
pub fn plain(fake: FakeOptions, request: &TestRequest) -> Vec<Sampled> {
    let rows = request.prompt_len() + request.max_tokens as usize;
    let blocks = rows.div_ceil(KV_BLOCK_SIZE);
    let fake = FakeOptions { full_blocks: blocks, window_blocks: blocks, ..fake };
    let backend = Arc::new(FakeBackend::default());
    let model = FakeModel::new(fake);
    let mut target = FakeTarget::new(Arc::clone(&backend), model).expect("a fake target");
    let blocks: Vec<u32> = (0..blocks as u32).collect();
    let table = BlockTable { full: &blocks, window: &blocks, window_base: 0 };

    let mut constraint = request.constraint(fake.vocab);
    let mut history =
        History { prompt: request.prompt.iter().copied().collect(), ..Default::default() };
    let (before, number, picture_rows) = request.picture.unwrap_or((0, 0, 0));
    let picture = before..before + picture_rows;
    let mut rows = backend.alloc(picture_rows, 1).expect("a buffer");
    for row in 0..picture_rows {
        let value = picture_row(picture_hash(number), row);
        backend.write(&mut rows, row, &[value]).expect("a row");
    }
    let mut tokens = request.prompt.clone();
    tokens.splice(before..before, std::iter::repeat_n(Token(0), picture_rows));
    let (mut completion, mut start) = (Vec::new(), 0);
    while completion.len() < request.max_tokens as usize {
        for (position, token) in tokens.iter().enumerate().skip(start) {
            let slice = SeqSlice { start: position as u32, len: 1, blocks: table };
            let input = match picture.contains(&position) {
                true => BatchInput::Embeds { buf: &rows, first_row: position - before },
                false => BatchInput::Tokens(std::slice::from_ref(token)),
            };
            target
                .forward(&[BatchEntry { slice, input, logits: LogitsRequest::Last }])
                .expect("a pass");
        }
        start = tokens.len();
        let mut mask = constraint.as_mut().map(|constraint| {
            let mut mask = TokenMask::default();
            constraint.mask(&mut mask).expect("a mask");
            mask
        });
        if completion.len() < request.min_tokens as usize {
            mask = without_stops(mask, &request.stop, fake.vocab);
        }
        let row = SampleRow {
            row: 0,
            sampling: &request.sampling,
            history: &history,
            drafted: &[],
            mask: mask.as_ref(),
            position: start as u32,
            logprobs: request.logprobs,
        };
        let mut sampled = Vec::new();
        backend.sample(target.logits(), &[row], &mut sampled).expect("a choice");
        let sampled = sampled.remove(0);
        let token = sampled.token;
        *history.completion.entry(token).or_insert(0) += 1;
        if let Some(constraint) = &mut constraint {
            constraint.accept(token).expect("what the mask allows");
        }
        tokens.push(token);
        completion.push(sampled);
        if request.stop.contains(&token) {
            break;
        }
    }
    completion
}

/// The mask without the stop tokens, unless it allows nothing else.
fn without_stops(mask: Option<TokenMask>, stop: &[Token], vocab: usize) -> Option<TokenMask> {
    let may = |id: &u32| mask.as_ref().is_none_or(|mask| mask.allows(Token(*id)));
    let go_on: Vec<u32> =
        (0..vocab as u32).filter(|id| may(id) && !stop.contains(&Token(*id))).collect();
    if go_on.is_empty() {
        return mask;
    }
    let mut words = vec![0; vocab.div_ceil(32)];
    go_on.iter().for_each(|id| words[*id as usize / 32] |= 1 << (id % 32));
    Some(TokenMask { words })
}
