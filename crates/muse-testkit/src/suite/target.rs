//! Tests of [`TargetModel`]: what a token's logits and hidden states may depend on, and what KV
//! blocks must hold.

use std::sync::Arc;

use muse_core::contract::{
    Backend, BatchEntry, BatchInput, BlockCopy, BlockTable, KV_BLOCK_SIZE, KvGroup, LogitsRequest,
    SeqSlice, TargetModel, Token,
};
use muse_core::hash::hash64;

/// Expands to one test per property for the [`Subject`] that the expression builds.
#[macro_export]
macro_rules! target_suite {
    ($build:expr) => {
        $crate::target_suite!(@tests $build;
            limits_fit_the_model
            chunking_a_prompt_changes_no_bit
            batch_composition_changes_no_bit
            requested_logits_are_those_of_a_full_request
            rejected_tokens_leave_no_trace
            copied_blocks_continue_alike
            saved_blocks_continue_alike
        );
    };
    (@tests $build:expr; $($test:ident)*) => {
        $(
            #[test]
            fn $test() {
                $crate::suite::target::$test(&mut $build);
            }
        )*
    };
}

/// Tokens of the longest sequence of the suite: over the end of a KV block.
const LEN: usize = KV_BLOCK_SIZE + 20;
/// KV blocks of a sequence.
const BLOCKS: u32 = 2;
/// The model needs so many KV blocks in each group, and passes of so many tokens and logits.
pub const MIN_BLOCKS: usize = 6;
/// See [`MIN_BLOCKS`].
pub const MIN_TOKENS: usize = 2 * LEN;

/// A target model under test.
pub struct Subject<B: Backend> {
    /// Its device.
    pub backend: Arc<B>,
    /// The model, with [`MIN_BLOCKS`] KV blocks and passes of [`MIN_TOKENS`].
    pub target: Box<dyn TargetModel<B>>,
    /// Width of a row of captured hidden states; 0 when none are captured.
    pub captured: usize,
}

/// What a pass returned: logits of the requested rows and captured hidden states, bit by bit.
#[derive(Clone, Debug, PartialEq)]
struct Outputs {
    logits: Vec<Vec<u32>>,
    hidden: Vec<Vec<u32>>,
}

impl<B: Backend> Subject<B> {
    fn tokens(&self, seed: u64) -> Vec<Token> {
        let vocab = self.target.spec().vocab as u64;
        (0..LEN as u64).map(|i| Token((hash64(seed, i) % vocab) as u32)).collect()
    }

    fn rows(&self, buf: &B::Buf, rows: usize, cols: usize) -> Vec<Vec<u32>> {
        let mut values = vec![0.0; rows * cols];
        if !values.is_empty() {
            self.backend.read(buf, 0, &mut values).expect("read");
        }
        let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect();
        values.chunks(cols.max(1)).map(bits).collect()
    }

    /// Runs entries of sequence (by its first block), first position, tokens and request.
    fn pass(&mut self, entries: &[(u32, usize, &[Token], LogitsRequest)]) -> Outputs {
        let blocks: Vec<Vec<u32>> =
            entries.iter().map(|(first, ..)| (*first..first + BLOCKS).collect()).collect();
        let batch: Vec<BatchEntry<'_, B>> = entries
            .iter()
            .zip(&blocks)
            .map(|(&(_, start, tokens, logits), blocks)| {
                let blocks = BlockTable { full: blocks, window: blocks, window_base: 0 };
                let slice = SeqSlice { start: start as u32, len: tokens.len(), blocks };
                BatchEntry { slice, input: BatchInput::Tokens(tokens), logits }
            })
            .collect();
        self.target.forward(&batch).expect("a pass");
        let requested = entries.iter().map(|(_, _, tokens, logits)| match logits {
            LogitsRequest::None => 0,
            LogitsRequest::Last => 1,
            LogitsRequest::All => tokens.len(),
        });
        let (requested, total) =
            (requested.sum(), entries.iter().map(|(_, _, tokens, _)| tokens.len()).sum());
        let vocab = self.target.spec().vocab;
        Outputs {
            logits: self.rows(self.target.logits(), requested, vocab),
            hidden: self.rows(self.target.captured_hidden(), total, self.captured),
        }
    }

    /// Outputs of every position of a sequence in one pass.
    fn whole(&mut self, first_block: u32, tokens: &[Token]) -> Outputs {
        self.pass(&[(first_block, 0, tokens, LogitsRequest::All)])
    }
}

/// Its limits allow the suite, and its vocabulary and positions are not empty.
pub fn limits_fit_the_model<B: Backend>(subject: &mut Subject<B>) {
    let (limits, spec) = (subject.target.limits(), subject.target.spec());
    assert!(limits.max_num_batched_tokens >= MIN_TOKENS, "{limits:?}");
    assert!(limits.max_logits_rows >= MIN_TOKENS, "{limits:?}");
    assert!(spec.vocab > 1 && spec.max_positions >= LEN && !spec.layers.is_empty());
}

/// A prompt in chunks of any size gives the bits of one pass.
pub fn chunking_a_prompt_changes_no_bit<B: Backend>(subject: &mut Subject<B>) {
    let tokens = subject.tokens(1);
    let whole = subject.whole(0, &tokens);
    for size in [1, 7, KV_BLOCK_SIZE, LEN - 1] {
        let mut chunked = Outputs { logits: Vec::new(), hidden: Vec::new() };
        for (i, chunk) in tokens.chunks(size).enumerate() {
            let outputs = subject.pass(&[(2, i * size, chunk, LogitsRequest::All)]);
            chunked.logits.extend(outputs.logits);
            chunked.hidden.extend(outputs.hidden);
        }
        assert!(chunked == whole, "chunks of {size} tokens give other bits");
    }
}

/// Sequences in one batch give the bits of each alone, in batch order.
pub fn batch_composition_changes_no_bit<B: Backend>(subject: &mut Subject<B>) {
    let (a, b) = (subject.tokens(2), subject.tokens(3));
    let (alone_a, alone_b) = (subject.whole(0, &a), subject.whole(2, &b));
    let half = LEN / 2;
    subject.pass(&[(0, 0, &a[..half], LogitsRequest::None)]);
    let all = LogitsRequest::All;
    let together = subject.pass(&[(0, half, &a[half..], all), (2, 0, &b, all)]);
    let expect = [&alone_a.logits[half..], &alone_b.logits].concat();
    assert!(together.logits == expect, "logits differ from those of each sequence alone");
    if subject.captured > 0 {
        let expect = [&alone_a.hidden[half..], &alone_b.hidden].concat();
        assert!(together.hidden == expect, "captured hidden states differ from those alone");
    }
}

/// Requests for no, the last and all logits give rows of a request for all, in batch order.
pub fn requested_logits_are_those_of_a_full_request<B: Backend>(subject: &mut Subject<B>) {
    let tokens = subject.tokens(4);
    let (short, long) = (&tokens[..5], &tokens[..9]);
    let whole = subject.whole(0, long).logits;
    let some = subject.pass(&[
        (0, 0, long, LogitsRequest::None),
        (2, 0, long, LogitsRequest::Last),
        (4, 0, short, LogitsRequest::All),
    ]);
    let expect = [&whole[8..9], &whole[..5]].concat();
    assert!(some.logits == expect, "requested rows are not those of a request for all");
}

/// Tokens that ran and were not kept are overwritten by those that follow.
pub fn rejected_tokens_leave_no_trace<B: Backend>(subject: &mut Subject<B>) {
    let (tokens, wrong) = (subject.tokens(5), subject.tokens(6));
    let whole = subject.whole(0, &tokens);
    let kept = LEN - 10;
    subject.pass(&[(2, 0, &tokens[..kept], LogitsRequest::None)]);
    subject.pass(&[(2, kept, &wrong[..10], LogitsRequest::All)]);
    let after = subject.pass(&[(2, kept, &tokens[kept..], LogitsRequest::All)]);
    assert!(after.logits == whole.logits[kept..], "rejected tokens changed later logits");
}

/// A sequence continues in copies of its blocks with the same bits.
pub fn copied_blocks_continue_alike<B: Backend>(subject: &mut Subject<B>) {
    let tokens = subject.tokens(7);
    let whole = subject.whole(0, &tokens);
    let kept = LEN - 3;
    subject.pass(&[(2, 0, &tokens[..kept], LogitsRequest::None)]);
    let mut copies = Vec::new();
    for group in [KvGroup::Full, KvGroup::Window] {
        for (from, positions) in [(2, KV_BLOCK_SIZE), (3, kept - KV_BLOCK_SIZE)] {
            copies.push(BlockCopy { group, from, to: from + 2, positions });
        }
    }
    subject.target.copy_blocks(&copies).expect("copies");
    // The originals are overwritten by another sequence.
    let other = subject.tokens(8);
    subject.pass(&[(2, 0, &other, LogitsRequest::None)]);
    let after = subject.pass(&[(4, kept, &tokens[kept..], LogitsRequest::All)]);
    assert!(after.logits == whole.logits[kept..], "copied blocks give other bits");
}

/// A sequence continues in blocks that were saved and loaded elsewhere with the same bits.
pub fn saved_blocks_continue_alike<B: Backend>(subject: &mut Subject<B>) {
    let tokens = subject.tokens(9);
    let whole = subject.whole(0, &tokens);
    let kept = LEN - 3;
    subject.pass(&[(2, 0, &tokens[..kept], LogitsRequest::None)]);
    let places: Vec<(KvGroup, u32)> =
        [KvGroup::Full, KvGroup::Window].into_iter().flat_map(|g| [(g, 2), (g, 3)]).collect();
    let mut bytes = Vec::new();
    for &(group, block) in &places {
        subject.target.save_block(group, block, &mut bytes).expect("saved");
    }
    let mut rest = &bytes[..];
    for &(group, block) in &places {
        subject.target.load_block(group, block + 2, &mut rest).expect("loaded");
    }
    assert!(rest.is_empty(), "{} bytes were saved and not loaded", rest.len());
    let after = subject.pass(&[(4, kept, &tokens[kept..], LogitsRequest::All)]);
    assert!(after.logits == whole.logits[kept..], "loaded blocks give other bits");
}
