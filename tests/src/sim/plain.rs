//! The plain single run: a row at a time, no engine, no pool, no drafter.

use std::sync::Arc;

use muse_core::contract::{
    Backend, History, PAGE_TOKENS, PageTable, PickRow, Picked, Place, Rows, Scores, Span, Target,
    TokenMask,
};
use muse_testkit::fake::{FakeBackend, FakeModel, FakeOptions, FakeTarget};

use super::rig::Ask;

/// What a request says when nothing else runs and nothing is guessed.
pub fn plain(fake: FakeOptions, ask: &Ask) -> Vec<Picked> {
    let rows = ask.prompt.len() + ask.max_tokens as usize;
    let pages = rows.div_ceil(PAGE_TOKENS);
    let fake = FakeOptions { full_pages: pages, window_pages: pages, ..fake };
    let backend = Arc::new(FakeBackend::default());
    let model = FakeModel::new(fake);
    let mut target = FakeTarget::new(Arc::clone(&backend), model).expect("a fake target");
    let pages: Vec<u32> = (0..pages as u32).collect();
    let table = PageTable { full: &pages, window: &pages, window_base: 0 };

    let mut constraint = ask.constraint(fake.vocab);
    let mut history =
        History { prompt: ask.prompt.iter().copied().collect(), ..Default::default() };
    let mut tokens = ask.prompt.clone();
    let (mut said, mut start) = (Vec::new(), 0);
    while said.len() < ask.max_tokens as usize {
        for (position, token) in tokens.iter().enumerate().skip(start) {
            let place = Place { start: position as u32, rows: 1, pages: table };
            let rows = Rows::Tokens(std::slice::from_ref(token));
            target.forward(&[Span { place, rows, scores: Scores::Last }]).expect("a pass");
        }
        start = tokens.len();
        let mask = constraint.as_mut().map(|constraint| {
            let mut mask = TokenMask::default();
            constraint.mask(&mut mask).expect("a mask");
            mask
        });
        let row = PickRow {
            row: 0,
            sampling: &ask.sampling,
            history: &history,
            drafted: &[],
            mask: mask.as_ref(),
            position: start as u32,
            logprobs: ask.logprobs,
        };
        let mut picked = Vec::new();
        backend.pick(target.scores(), &[row], &mut picked).expect("a choice");
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
