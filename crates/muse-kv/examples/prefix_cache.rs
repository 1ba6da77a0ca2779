//! Two sequences with a common prompt: the second finds the KV blocks of the first.

use muse_core::contract::{BlockCount, KvPool, PositionKey, SeqId, Token};
use muse_kv::{Pool, PoolOptions};

fn main() -> muse_core::Result<()> {
    let mut pool = Pool::new(PoolOptions {
        blocks: BlockCount { full: 16, window: 16 },
        window_reach: 255,
        max_step_tokens: 64,
        ..PoolOptions::default()
    });
    let prompt: Vec<PositionKey> = (0..200).map(|id| Token(id).into()).collect();

    prefill(&mut pool, SeqId(1), &prompt)?;
    pool.close(SeqId(1)); // Its complete blocks stay cached until the space is needed.

    // The same 150 tokens, then others.
    let mut second = prompt[..150].to_vec();
    second.extend((1000..1030).map(|id| PositionKey::from(Token(id))));
    prefill(&mut pool, SeqId(2), &second)?;
    println!("KV blocks of the second: {:?}", pool.block_table(SeqId(2)).full);
    println!("free: {:?} of {:?}", pool.free(), pool.total());
    Ok(())
}

/// Opens a sequence and commits its prompt in chunks, as the engine does.
fn prefill(pool: &mut Pool, seq: SeqId, prompt: &[PositionKey]) -> muse_core::Result<()> {
    let cached = pool.open(seq, prompt)?;
    println!("{seq:?}: {cached} of {} positions are cached", prompt.len());
    let mut copies = Vec::new();
    for chunk in prompt[cached as usize..].chunks(64) {
        pool.reserve(seq, pool.len(seq) + chunk.len() as u32, &mut copies)?;
        // Here the model would copy blocks as `copies` asks and run the chunk.
        copies.clear();
        pool.commit(seq, chunk);
    }
    Ok(())
}
