//! The fake target notices a wrong KV block: the same tokens through three block tables.

use std::sync::Arc;

use muse_core::Result;
use muse_core::contract::{
    Backend, BatchEntry, BatchInput, BlockTable, LogitsRequest, SeqSlice, TargetModel, Token,
};
use muse_testkit::fake::{FakeBackend, FakeModel, FakeOptions, FakeTarget};

fn main() -> Result<()> {
    let prompt: Vec<Token> = (0..70).map(Token).collect();
    let first = next_token(&prompt, &[0, 1], &[0, 1])?;
    let moved = next_token(&prompt, &[5, 3], &[5, 3])?;
    let wrong = next_token(&prompt, &[5, 3], &[7, 3])?;
    println!("in blocks 0, 1: {first:?}");
    println!("in blocks 5, 3: {moved:?}, the same");
    println!("the last token looks into block 7 instead of 5: {wrong:?}");
    assert!(first == moved && first != wrong);
    Ok(())
}

/// The likeliest token after `prompt`, whose last token is run with a block table of its own.
fn next_token(prompt: &[Token], blocks: &[u32], last_blocks: &[u32]) -> Result<Token> {
    let backend = Arc::new(FakeBackend::default());
    let options = FakeOptions::default();
    let mut target = FakeTarget::new(Arc::clone(&backend), FakeModel::new(options))?;
    let (body, last) = prompt.split_at(prompt.len() - 1);
    for (tokens, start, full, logits) in [
        (body, 0, blocks, LogitsRequest::None),
        (last, body.len() as u32, last_blocks, LogitsRequest::Last),
    ] {
        let table = BlockTable { full, window: blocks, window_base: 0 };
        let slice = SeqSlice { start, len: tokens.len(), blocks: table };
        target.forward(&[BatchEntry { slice, input: BatchInput::Tokens(tokens), logits }])?;
    }
    let mut logits = vec![0.0; options.vocab];
    backend.read(target.logits(), 0, &mut logits)?;
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    Ok(Token(best.map_or(0, |(id, _)| id as u32)))
}
