//! Tests of [`Drafter`]: what its draft tokens may depend on, and what its KV blocks must hold.

use std::ops::Range;
use std::sync::Arc;

use muse_core::contract::{
    Anchor, Backend, BatchEntry, BatchInput, BlockTable, ContextSlice, DraftToken, Drafter,
    KV_BLOCK_SIZE, KvGroup, LogitsRequest, SeqSlice, TargetModel, Token,
};
use muse_core::hash::hash64;

/// Expands to one test per property for the [`Subject`] that the expression builds.
#[macro_export]
macro_rules! drafter_suite {
    ($build:expr) => {
        $crate::drafter_suite!(@tests $build;
            draft_tokens_are_tokens_with_confidences
            a_smaller_maximum_changes_only_the_number
            batch_composition_changes_no_draft
            chunking_the_context_changes_no_draft
            drafting_leaves_no_trace
            saved_blocks_draft_alike
        );
    };
    (@tests $build:expr; $($test:ident)*) => {
        $(
            #[test]
            fn $test() {
                $crate::suite::drafter::$test(&mut $build);
            }
        )*
    };
}

/// Tokens of a context: over the end of a KV block.
const LEN: usize = KV_BLOCK_SIZE + 9;
/// KV blocks of a sequence.
const BLOCKS: u32 = 3;
/// Target model and drafter need so many KV blocks in each group, and passes of so many tokens.
pub const MIN_BLOCKS: usize = 9;
/// See [`MIN_BLOCKS`].
pub const MIN_TOKENS: usize = 2 * LEN;

/// A drafter under test.
pub struct Subject<B: Backend> {
    /// The device of both.
    pub backend: Arc<B>,
    /// Its target model, which captures the layers that the drafter reads.
    pub target: Box<dyn TargetModel<B>>,
    /// The drafter.
    pub drafter: Box<dyn Drafter<B>>,
}

impl<B: Backend> Subject<B> {
    fn tokens(&self, seed: u64) -> Vec<Token> {
        let vocab = self.target.spec().vocab as u64;
        (0..=LEN as u64).map(|i| Token((hash64(seed, i) % vocab) as u32)).collect()
    }

    /// Runs `tokens[range]` of the sequence with this first block, and appends them to the context.
    fn append(&mut self, first_block: u32, tokens: &[Token], range: Range<usize>) {
        let blocks: Vec<u32> = (first_block..first_block + BLOCKS).collect();
        let blocks = BlockTable { full: &blocks, window: &blocks, window_base: 0 };
        let slice = SeqSlice { start: range.start as u32, len: range.len(), blocks };
        let (input, logits) = (BatchInput::Tokens(&tokens[range]), LogitsRequest::None);
        self.target.forward(&[BatchEntry { slice, input, logits }]).expect("a pass");
        let context = [ContextSlice { slice, first_row: 0 }];
        self.drafter.append_context(&context, self.target.captured_hidden()).expect("appended");
    }

    /// Drafts behind anchors of sequence (by its first block), token and maximum.
    fn draft(&mut self, anchors: &[(u32, Token, usize)]) -> Vec<Vec<DraftToken>> {
        let blocks: Vec<Vec<u32>> =
            anchors.iter().map(|(first, ..)| (*first..first + BLOCKS).collect()).collect();
        let anchors: Vec<Anchor<'_>> = anchors
            .iter()
            .zip(&blocks)
            .map(|(&(_, token, max), blocks)| {
                let blocks = BlockTable { full: blocks, window: blocks, window_base: 0 };
                Anchor { slice: SeqSlice { start: LEN as u32, len: 1, blocks }, token, max }
            })
            .collect();
        // What an earlier draft left in the lists must go.
        let stale = DraftToken { token: Token(0), confidence: 0.5 };
        let mut drafts = vec![vec![stale]; anchors.len()];
        self.drafter.draft(&anchors, &*self.target, &mut drafts).expect("drafted");
        drafts
    }

    /// A context of [`LEN`] tokens in these blocks; returns the anchor behind it.
    fn context(&mut self, first_block: u32, seed: u64) -> Token {
        let tokens = self.tokens(seed);
        self.append(first_block, &tokens, 0..LEN);
        tokens[LEN]
    }
}

/// Draft tokens are of the vocabulary, no more than the drafter's width, with probabilities.
pub fn draft_tokens_are_tokens_with_confidences<B: Backend>(subject: &mut Subject<B>) {
    let (anchor, width) = (subject.context(0, 1), subject.drafter.width());
    let vocab = subject.target.spec().vocab;
    assert!(width > 0 && !subject.drafter.captured_layers().is_empty());
    let drafts = subject.draft(&[(0, anchor, usize::MAX)]).remove(0);
    assert!(!drafts.is_empty() && drafts.len() <= width, "{} of {width}", drafts.len());
    for draft in &drafts {
        assert!((draft.token.0 as usize) < vocab, "{draft:?} of a vocabulary of {vocab}");
        assert!((0.0..=1.0).contains(&draft.confidence), "{draft:?}");
    }
}

/// A smaller maximum gives the leading tokens of a larger one, none of them for 0.
pub fn a_smaller_maximum_changes_only_the_number<B: Backend>(subject: &mut Subject<B>) {
    let (anchor, width) = (subject.context(0, 2), subject.drafter.width());
    let all = subject.draft(&[(0, anchor, width)]).remove(0);
    for max in 0..=width {
        let some = subject.draft(&[(0, anchor, max)]).remove(0);
        assert_eq!(some, all[..max.min(all.len())], "at most {max}");
    }
}

/// Draft tokens do not depend on the other anchors of a call.
pub fn batch_composition_changes_no_draft<B: Backend>(subject: &mut Subject<B>) {
    let (a, b, c) = (subject.context(0, 3), subject.context(3, 4), subject.context(6, 5));
    let max = subject.drafter.width();
    let alone: Vec<_> = [(0, a, max), (3, b, max), (6, c, 1)]
        .iter()
        .flat_map(|anchor| subject.draft(std::slice::from_ref(anchor)))
        .collect();
    assert_eq!(subject.draft(&[(0, a, max), (3, b, max), (6, c, 1)]), alone);
    let reversed = subject.draft(&[(6, c, 1), (3, b, max), (0, a, max)]);
    assert_eq!(reversed.into_iter().rev().collect::<Vec<_>>(), alone);
    assert!(subject.draft(&[]).is_empty());
}

/// A context that is appended in parts drafts like one that is appended at once.
pub fn chunking_the_context_changes_no_draft<B: Backend>(subject: &mut Subject<B>) {
    let (tokens, max) = (subject.tokens(6), subject.drafter.width());
    let anchor = subject.context(0, 6);
    let whole = subject.draft(&[(0, anchor, max)]);
    for size in [1, 10, KV_BLOCK_SIZE] {
        for start in (0..LEN).step_by(size) {
            subject.append(3, &tokens, start..LEN.min(start + size));
        }
        assert_eq!(subject.draft(&[(3, anchor, max)]), whole, "chunks of {size} tokens");
    }
}

/// A draft does not change later drafts, of this or another anchor at the same position.
pub fn drafting_leaves_no_trace<B: Backend>(subject: &mut Subject<B>) {
    let (anchor, max) = (subject.context(0, 7), subject.drafter.width());
    let first = subject.draft(&[(0, anchor, max)]);
    let other = Token((anchor.0 + 1) % subject.target.spec().vocab as u32);
    subject.draft(&[(0, other, max)]);
    assert_eq!(subject.draft(&[(0, anchor, max)]), first);
}

/// Blocks that were saved and loaded elsewhere draft alike.
pub fn saved_blocks_draft_alike<B: Backend>(subject: &mut Subject<B>) {
    let (anchor, max) = (subject.context(0, 8), subject.drafter.width());
    let first = subject.draft(&[(0, anchor, max)]);
    let (mut target, mut drafter) = (Vec::new(), Vec::new());
    let places = [KvGroup::Full, KvGroup::Window].map(|g| [(g, 0), (g, 1)]).concat();
    for &(group, block) in &places {
        subject.target.save_block(group, block, &mut target).expect("saved");
        subject.drafter.save_block(group, block, &mut drafter).expect("saved");
    }
    let (mut target, mut drafter) = (&target[..], &drafter[..]);
    for &(group, block) in &places {
        subject.target.load_block(group, block + 3, &mut target).expect("loaded");
        subject.drafter.load_block(group, block + 3, &mut drafter).expect("loaded");
    }
    assert!(target.is_empty() && drafter.is_empty(), "all bytes are loaded");
    assert_eq!(subject.draft(&[(3, anchor, max)]), first);
}
