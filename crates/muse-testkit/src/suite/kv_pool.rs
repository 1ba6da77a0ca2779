//! Tests of [`KvPool`] against a model that stores a value at every position of every KV block.

use std::collections::{BTreeMap, HashSet};

use muse_core::contract::{
    BlockCopy, BlockCount, KV_BLOCK_SIZE, KvGroup, KvPool, PositionKey, SeqId, Token,
};
use muse_core::{Error, hash::hash64};

/// Expands to one test per property for the pool that the expression builds from a [`Shape`].
#[macro_export]
macro_rules! kv_pool_suite {
    ($build:expr) => {
        $crate::kv_pool_suite!(@tests $build;
            every_position_reads_back
            exhaustion_changes_nothing
            window_blocks_are_freed_out_of_reach
            worst_case_is_enough_for_one
            truncation_frees_reserved_positions
        );
    };
    (@tests $build:expr; $($test:ident)*) => {
        $(
            #[test]
            fn $test() {
                $crate::suite::kv_pool::$test(&|shape| Box::new($build(shape)));
            }
        )*
    };
}

/// Sizes of the pool to build.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// KV blocks of each group.
    pub blocks: BlockCount,
    /// How many positions back the next one attends to in the window group (inclusive distance).
    pub window_reach: u32,
    /// The most positions that a step writes past the length of a sequence.
    pub max_step_tokens: u32,
}

impl Shape {
    fn new(full: usize, window: usize, window_reach: u32, max_step_tokens: u32) -> Self {
        Self { blocks: BlockCount { full, window }, window_reach, max_step_tokens }
    }
}

/// Builds a pool.
pub type Build<'a> = &'a dyn Fn(Shape) -> Box<dyn KvPool>;

/// Random sequences of all operations: committed positions that are attended to hold their values,
/// free KV blocks are exactly those that no open sequence has, and all are free in the end.
pub fn every_position_reads_back(build: Build<'_>) {
    let mut cached = 0;
    for seed in 0..300 {
        cached += Simulation::new(seed, build).run();
    }
    println!("{cached} positions were found in the cache");
}

/// A reservation that does not fit leaves KV blocks and counts as they were.
pub fn exhaustion_changes_nothing(build: Build<'_>) {
    let mut pool = build(Shape::new(3, 4, 64, 64));
    let (a, b) = (SeqId(1), SeqId(2));
    let mut copies = Vec::new();
    pool.open(a, &keys(1, 1)).expect("opens");
    pool.open(b, &keys(2, 1)).expect("opens");
    pool.reserve(a, 100, &mut copies).expect("fits");
    let before = pool.free();
    let error = pool.reserve(b, 100, &mut copies).expect_err("one full block is left");
    assert!(matches!(error, Error::Exhausted(_)), "{error:?}");
    assert_eq!(pool.free(), before);
    assert!(
        pool.block_table(b).full.is_empty()
            && pool.block_table(b).window.is_empty()
            && copies.is_empty()
    );
    pool.reserve(b, 64, &mut copies).expect("one block is left");
}

/// At every length exactly the KV blocks in reach of the next position are held.
pub fn window_blocks_are_freed_out_of_reach(build: Build<'_>) {
    for reach in [0, 1, 63, 64, 100, 200] {
        let mut pool = build(Shape::new(16, 16, reach, 1));
        let seq = SeqId(9);
        pool.open(seq, &keys(3, 1)).expect("opens");
        for len in 1..=700u32 {
            pool.reserve(seq, len, &mut Vec::new()).expect("fits");
            pool.commit(seq, &keys(3, len)[len as usize - 1..]);
            let oldest = len.saturating_sub(reach) / 64;
            let blocks = pool.block_table(seq);
            assert_eq!(blocks.window_base, oldest * 64, "reach {reach}, length {len}");
            assert_eq!(blocks.window.len() as u32, len.div_ceil(64) - oldest);
            let held = pool.total().window - pool.free().window;
            assert_eq!(held, blocks.window.len(), "the others can be had");
        }
    }
}

/// A sequence alone in a pool of its worst case always fits, whatever is cached.
pub fn worst_case_is_enough_for_one(build: Build<'_>) {
    for seed in 0..60u64 {
        let dice = |n: u64, low: u64, high: u64| low + hash64(seed, n) % (high - low + 1);
        let (reach, block) = (dice(1, 0, 200) as u32, dice(2, 1, 150) as u32);
        let rows = dice(3, 1, 900) as u32;
        let need = build(Shape::new(99, 99, reach, block)).worst_case(rows);
        let mut pool = build(Shape::new(need.full, need.window, reach, block));
        for round in 0..4 {
            let seq = SeqId(round);
            // Alike up to a point, so that rounds meet what others left.
            let mut want = keys(seed, rows);
            let differs = dice(4 + round, 0, u64::from(rows) - 1) as usize;
            want[differs] = PositionKey::Token(Token(1000 + round as u32));
            let mut len = pool.open(seq, &want).expect("opens");
            let mut steps = 0;
            while len < rows {
                steps += 1;
                let end = rows.min(len + dice(100 * round + steps, 1, u64::from(block)) as u32);
                pool.reserve(seq, end, &mut Vec::new()).unwrap_or_else(|e| {
                    panic!("seed {seed}: {rows} rows, reach {reach}, block {block}: {e}")
                });
                pool.commit(seq, &want[len as usize..end as usize]);
                len = end;
            }
            pool.close(seq);
            assert_eq!(pool.free(), pool.total());
        }
    }
}

/// Reserved positions are freed at once, committed ones stay.
pub fn truncation_frees_reserved_positions(build: Build<'_>) {
    let mut pool = build(Shape::new(8, 8, 200, 200));
    let seq = SeqId(4);
    pool.open(seq, &keys(5, 1)).expect("opens");
    pool.reserve(seq, 200, &mut Vec::new()).expect("fits");
    pool.commit(seq, &keys(5, 70));
    let before = pool.block_table(seq).full[..2].to_vec();
    pool.truncate(seq, 70);
    assert_eq!(pool.free(), BlockCount { full: 6, window: 6 });
    assert_eq!((pool.len(seq), pool.block_table(seq).full), (70, &before[..]));
    pool.truncate(seq, 3);
    assert_eq!((pool.len(seq), pool.block_table(seq).full), (3, &before[..1]));
    pool.truncate(seq, 0);
    assert!(pool.block_table(seq).full.is_empty());
    assert_eq!(pool.free(), pool.total());
}

fn keys(seed: u64, count: u32) -> Vec<PositionKey> {
    (0..u64::from(count)).map(|i| PositionKey::Token(Token((hash64(seed, i) % 3) as u32))).collect()
}

/// A pool in use, and what its blocks must hold.
struct Simulation {
    seed: u64,
    drawn: u64,
    shape: Shape,
    pool: Box<dyn KvPool>,
    full: Vec<u64>,
    window: Vec<u64>,
    open: BTreeMap<SeqId, Vec<PositionKey>>,
    /// Conversations to branch from.
    past: Vec<Vec<PositionKey>>,
}

impl Simulation {
    fn new(seed: u64, build: Build<'_>) -> Self {
        let dice = |n: u64, low: u64, high: u64| low + hash64(seed, n) % (high - low + 1);
        let (full, window) = (dice(1, 1, 12) as usize, dice(2, 1, 12) as usize);
        let shape = Shape::new(full, window, dice(3, 0, 200) as u32, dice(4, 1, 130) as u32);
        Self {
            seed,
            drawn: 4,
            shape,
            pool: build(shape),
            full: vec![0; shape.blocks.full * KV_BLOCK_SIZE],
            window: vec![0; shape.blocks.window * KV_BLOCK_SIZE],
            open: BTreeMap::new(),
            past: vec![keys(seed, 300)],
        }
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.drawn += 1;
        low + hash64(self.seed, self.drawn) % (high - low + 1)
    }

    fn run(mut self) -> u64 {
        let mut cached = 0;
        for step in 0..120 {
            let some = self.between(0, self.open.len().max(1) as u64 - 1) as usize;
            let seq = self.open.keys().nth(some).copied();
            match (self.between(0, 9), seq) {
                (0 | 1, _) | (_, None) => cached += self.begin(SeqId(step)),
                (2, Some(seq)) => self.close(seq),
                (3, Some(seq)) => self.truncate(seq),
                (_, Some(seq)) => self.advance(seq),
            }
            self.check();
        }
        while let Some((&seq, _)) = self.open.first_key_value() {
            self.close(seq);
        }
        assert_eq!(self.pool.free(), self.pool.total(), "seed {}", self.seed);
        cached
    }

    fn begin(&mut self, seq: SeqId) -> u64 {
        let past = self.between(0, self.past.len() as u64 - 1) as usize;
        let len = self.between(1, self.past[past].len() as u64) as usize;
        let mut prompt = self.past[past][..len].to_vec();
        prompt.push(PositionKey::Token(Token(self.between(0, 2) as u32)));
        let cached = self.pool.open(seq, &prompt).expect("opens");
        assert!((cached as usize) < prompt.len(), "the last position is never cached");
        self.open.insert(seq, prompt[..cached as usize].to_vec());
        self.past.push(prompt);
        u64::from(cached)
    }

    fn close(&mut self, seq: SeqId) {
        self.pool.close(seq);
        let sequence = self.open.remove(&seq).expect("open");
        if !sequence.is_empty() {
            self.past.push(sequence);
        }
    }

    /// Truncates as far back as the contract allows: to where the window is still held.
    fn truncate(&mut self, seq: SeqId) {
        let len = self.open[&seq].len() as u64;
        let base = u64::from(self.pool.block_table(seq).window_base);
        let lowest = if base == 0 { 0 } else { base + u64::from(self.shape.window_reach) };
        let to = self.between(lowest.min(len), len);
        self.pool.truncate(seq, to as u32);
        self.open.get_mut(&seq).expect("open").truncate(to as usize);
    }

    /// A step: reserves, makes the copies, writes positions and commits some of them.
    fn advance(&mut self, seq: SeqId) {
        let rows = self.between(1, u64::from(self.shape.max_step_tokens)) as usize;
        let len = self.open[&seq].len();
        let before = (self.pool.free(), self.pool.block_table(seq).full.to_vec());
        let mut copies = Vec::new();
        if self.pool.reserve(seq, (len + rows) as u32, &mut copies).is_err() {
            assert_eq!(before, (self.pool.free(), self.pool.block_table(seq).full.to_vec()));
            assert!(copies.is_empty());
            return;
        }
        self.copy(&copies);
        let kept = self.between(0, rows as u64) as usize;
        let mut sequence = self.open[&seq].clone();
        let new: Vec<PositionKey> = match self.past.iter().find(|past| {
            past.len() >= len + kept && past[..len] == sequence[..] && past.len() > len
        }) {
            // Continue like another sequence, so that KV blocks can be shared.
            Some(past) if kept.is_multiple_of(2) => past[len..len + kept].to_vec(),
            _ => (0..kept).map(|_| PositionKey::Token(Token(self.between(0, 2) as u32))).collect(),
        };
        sequence.extend(&new);
        let truth = chain(&sequence);
        for position in len..len + rows {
            // Positions that are not committed hold garbage.
            self.write(seq, position, truth.get(position).copied().unwrap_or(u64::MAX));
        }
        self.pool.commit(seq, &new);
        self.open.insert(seq, sequence);
    }

    fn copy(&mut self, copies: &[BlockCopy]) {
        for copy in copies {
            let cells = match copy.group {
                KvGroup::Full => &mut self.full,
                KvGroup::Window => &mut self.window,
            };
            let (from, to) = (copy.from as usize * KV_BLOCK_SIZE, copy.to as usize * KV_BLOCK_SIZE);
            cells.copy_within(from..from + copy.positions, to);
        }
    }

    fn write(&mut self, seq: SeqId, position: usize, value: u64) {
        let blocks = self.pool.block_table(seq);
        let (block, row) = blocks.slot(KvGroup::Full, position as u32);
        self.full[block as usize * KV_BLOCK_SIZE + row] = value;
        let (block, row) = blocks.slot(KvGroup::Window, position as u32);
        self.window[block as usize * KV_BLOCK_SIZE + row] = value;
    }

    fn check(&self) {
        let (mut full, mut window) = (HashSet::<u32>::new(), HashSet::<u32>::new());
        for (&seq, sequence) in &self.open {
            assert_eq!(self.pool.len(seq) as usize, sequence.len());
            let blocks = self.pool.block_table(seq);
            full.extend(blocks.full);
            window.extend(blocks.window);
            let seen = sequence.len().saturating_sub(self.shape.window_reach as usize);
            for (position, value) in chain(sequence).into_iter().enumerate() {
                let (block, row) = blocks.slot(KvGroup::Full, position as u32);
                let at = block as usize * KV_BLOCK_SIZE + row;
                assert_eq!(self.full[at], value, "seed {}: {seq:?} at {position}", self.seed);
                if position >= seen {
                    let (block, row) = blocks.slot(KvGroup::Window, position as u32);
                    let at = block as usize * KV_BLOCK_SIZE + row;
                    assert_eq!(self.window[at], value, "seed {}: {seq:?} at {position}", self.seed);
                }
            }
        }
        let (free, total) = (self.pool.free(), self.pool.total());
        assert_eq!(full.len() + free.full, total.full, "seed {}", self.seed);
        assert_eq!(window.len() + free.window, total.window, "seed {}", self.seed);
    }
}

/// What each position holds: a hash of all keys up to it.
fn chain(keys: &[PositionKey]) -> Vec<u64> {
    let mut hash = 0;
    let next = |key: &PositionKey| {
        let PositionKey::Token(token) = key else { unreachable!("tokens only here") };
        hash = hash64(hash, u64::from(token.0));
        hash
    };
    keys.iter().map(next).collect()
}
