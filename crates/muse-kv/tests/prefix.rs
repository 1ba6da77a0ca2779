//! The prefix cache: continued, branched and edited conversations, eviction and the window.

use muse_core::contract::{BlockCopy, BlockCount, KvGroup, KvPool, PositionKey, SeqId, Token};
use muse_kv::{Pool, PoolOptions};

const WIDE: PoolOptions = PoolOptions {
    blocks: BlockCount { full: 64, window: 64 },
    window_reach: 100,
    max_step_tokens: 64,
    prefix_caching: true,
    offload_root: None,
};

fn keys(tokens: impl IntoIterator<Item = u32>) -> Vec<PositionKey> {
    tokens.into_iter().map(|id| PositionKey::Token(Token(id))).collect()
}

/// Runs a whole sequence a KV block at a time and leaves it open. Returns the cached positions.
fn run(pool: &mut Pool, seq: u64, keys: &[PositionKey]) -> u32 {
    let seq = SeqId(seq);
    let cached = pool.open(seq, keys).expect("opens");
    for chunk in keys[cached as usize..].chunks(64) {
        let end = pool.len(seq) + chunk.len() as u32;
        pool.reserve(seq, end, &mut Vec::new()).expect("fits");
        pool.commit(seq, chunk);
    }
    cached
}

#[test]
fn a_continued_conversation_runs_only_its_new_tokens() {
    let mut pool = Pool::new(WIDE);
    let mut prompt = keys(0..1000);
    assert_eq!(run(&mut pool, 1, &prompt), 0);
    pool.close(SeqId(1));
    prompt.extend(keys(5000..5020));
    assert_eq!(run(&mut pool, 2, &prompt), 1000);
}

#[test]
fn the_last_position_always_runs() {
    let mut pool = Pool::new(WIDE);
    for (seq, len, expect) in [(1, 128, 0), (2, 128, 127), (3, 129, 128), (4, 65, 64), (5, 64, 63)]
    {
        assert_eq!(run(&mut pool, seq, &keys(0..len)), expect, "sequence {seq}");
        pool.close(SeqId(seq));
    }
}

#[test]
fn open_sequences_share_their_prefix() {
    let mut pool = Pool::new(WIDE);
    let branch = |id: u32| keys((0..300).chain(id..id + 50));
    run(&mut pool, 1, &branch(1000));
    // Complete KV blocks of an open sequence are shared; its last one is its own.
    assert_eq!(run(&mut pool, 2, &branch(2000)), 256 + 44);
    assert_eq!(pool.block_table(SeqId(1)).full[..4], pool.block_table(SeqId(2)).full[..4]);
    assert_ne!(pool.block_table(SeqId(1)).full[4], pool.block_table(SeqId(2)).full[4]);
}

#[test]
fn an_edit_shares_what_is_before_it() {
    let mut pool = Pool::new(WIDE);
    run(&mut pool, 1, &keys(0..400));
    pool.close(SeqId(1));
    let mut edited = keys(0..400);
    edited[0] = PositionKey::Token(Token(77));
    assert_eq!(run(&mut pool, 2, &edited), 0, "the first position differs");
    let mut edited = keys(0..400);
    edited[200] = PositionKey::Token(Token(77));
    let seq = SeqId(3);
    assert_eq!(pool.open(seq, &edited).expect("opens"), 200);
    let mut copies: Vec<BlockCopy> = Vec::new();
    let shared = pool.block_table(seq).full[3];
    pool.reserve(seq, 201, &mut copies).expect("fits");
    assert_eq!(copies.len(), 2, "a block of each group is copied before it is written");
    assert!(copies.iter().all(|copy| copy.positions == 8));
    assert_eq!((copies[0].group, copies[0].from), (KvGroup::Full, shared));
    assert_eq!(pool.block_table(seq).full[3], copies[0].to);
}

#[test]
fn sequences_that_commit_the_same_prefix_keep_one_block() {
    let mut pool = Pool::new(WIDE);
    let same = keys(0..128);
    for seq in [SeqId(1), SeqId(2)] {
        pool.open(seq, &same).expect("opens");
        pool.reserve(seq, 128, &mut Vec::new()).expect("fits");
    }
    pool.commit(SeqId(1), &same);
    pool.commit(SeqId(2), &same);
    assert_eq!(pool.block_table(SeqId(1)).full, pool.block_table(SeqId(2)).full);
    assert_eq!(pool.free().full, 62);
}

#[test]
fn the_least_recently_used_prefix_is_evicted_first() {
    let mut pool = Pool::new(PoolOptions { blocks: BlockCount { full: 6, window: 6 }, ..WIDE });
    run(&mut pool, 1, &keys(0..128));
    pool.close(SeqId(1));
    run(&mut pool, 2, &keys(1000..1128));
    pool.close(SeqId(2));
    assert_eq!(run(&mut pool, 3, &keys(0..128)), 127);
    pool.close(SeqId(3));
    // Four KV blocks are needed and two are free: the second prefix is evicted.
    run(&mut pool, 4, &keys(2000..2200));
    pool.close(SeqId(4));
    assert_eq!(pool.open(SeqId(5), &keys(0..128)).expect("opens"), 127);
    assert_eq!(pool.open(SeqId(6), &keys(1000..1128)).expect("opens"), 0);
}

#[test]
fn a_prefix_without_its_window_is_not_reused() {
    // A window of two KV blocks: the prefix's first full blocks are cached, their window blocks not.
    let mut pool = Pool::new(PoolOptions { blocks: BlockCount { full: 40, window: 6 }, ..WIDE });
    run(&mut pool, 1, &keys(0..640));
    pool.close(SeqId(1));
    let at_end = keys((0..640).chain(7000..7010));
    assert_eq!(run(&mut pool, 2, &at_end), 640, "the end can be reused");
    let mut middle = keys(0..640);
    middle[230] = PositionKey::Token(Token(77));
    assert_eq!(pool.open(SeqId(3), &middle).expect("opens"), 0, "the middle cannot");
}

#[test]
fn truncation_reaches_back_as_far_as_the_window_is_cached() {
    let mut pool = Pool::new(WIDE);
    run(&mut pool, 1, &keys(0..640));
    assert_eq!(pool.block_table(SeqId(1)).window_base, 512);
    pool.truncate(SeqId(1), 200);
    let blocks = pool.block_table(SeqId(1));
    assert_eq!((blocks.full.len(), blocks.window_base, blocks.window.len()), (4, 64, 3));
    pool.truncate(SeqId(1), 0);
    assert!(pool.block_table(SeqId(1)).window.is_empty());
    assert_eq!((pool.block_table(SeqId(1)).window_base, pool.free()), (0, pool.total()));
    assert_eq!(run(&mut pool, 2, &keys(0..640)), 639);
}
