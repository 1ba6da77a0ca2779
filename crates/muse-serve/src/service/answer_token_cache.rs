//! The tokens of generated answers. The same text can be spelled by other tokens than those that
//! were sampled; a prompt that repeats an answer gets the sampled tokens, so that the prefix cache
//! finds their KV blocks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muse_core::contract::{Token, Tokenizer};
use muse_core::hash::hash64;

/// Tokens of all cached answers together, [`ENTRY_TOKENS`] for each included. The least recently
/// used prompts are evicted.
const MAX_TOKENS: usize = 1 << 20;
/// The memory of an entry apart from its tokens, counted in tokens.
const ENTRY_TOKENS: usize = 32;
/// Answers kept for one prompt.
const MAX_ANSWERS_PER_PROMPT: usize = 4;
/// Precedes the id of a special token in [`Spelling`]. No UTF-8 text has this byte.
const SPECIAL_TOKEN: u8 = 0xff;

/// Answers by the hashes of their prompts.
pub(super) struct AnswerTokenCache {
    tokenizer: Arc<dyn Tokenizer>,
    state: Mutex<State>,
}

/// Stands for a prompt, see [`AnswerTokenCache::key`].
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptKey(u64);

#[derive(Default)]
struct State {
    entries: HashMap<u64, Entry>,
    tokens: usize,
    clock: u64,
}

/// The answers to one prompt.
#[derive(Default)]
struct Entry {
    /// The newest is the last.
    answers: Vec<Arc<[Token]>>,
    last_used: u64,
}

impl AnswerTokenCache {
    pub(super) fn new(tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self { tokenizer, state: Mutex::default() }
    }

    /// The state is consistent after every statement: a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of a prompt.
    pub(super) fn key(prompt: &[Token]) -> PromptKey {
        PromptKey(prompt.iter().fold(0, |hash, &token| extend_hash(hash, token)))
    }

    /// Keeps the answer to a prompt.
    pub(super) fn insert(&self, prompt: PromptKey, answer: &[Token]) {
        if answer.is_empty() || cost(answer) > MAX_TOKENS {
            return;
        }
        self.lock().insert(prompt.0, answer.into());
    }

    /// Replaces each answer in a prompt by the tokens it was sampled in, as far as the prompt
    /// repeats its text.
    pub(super) fn substitute(&self, prompt: &mut Vec<Token>) {
        let (mut hash, mut at) = (0, 0);
        while at < prompt.len() {
            hash = extend_hash(hash, prompt[at]);
            at += 1;
            let Some(answers) = self.lock().find(hash) else { continue };
            let rest = &prompt[at..];
            let matches = answers.iter().map(|answer| (self.common_prefix(answer, rest), answer));
            if let Some(((length, replaced), answer)) =
                matches.max_by_key(|((length, _), _)| *length)
                && answer[..length] != rest[..replaced]
            {
                prompt.splice(at..at + replaced, answer[..length].iter().copied());
            }
        }
    }

    /// How many leading tokens of `answer` and of `rest` have the same spelling.
    fn common_prefix(&self, answer: &[Token], rest: &[Token]) -> (usize, usize) {
        let (mut a, mut b) = (Spelling::default(), Spelling::default());
        let (mut i, mut j, mut common) = (0, 0, (0, 0));
        loop {
            // The shorter spelling is extended.
            let (next, spelling, tokens) = match a.length <= b.length {
                true => (&mut i, &mut a, answer),
                false => (&mut j, &mut b, rest),
            };
            let Some(&token) = tokens.get(*next) else { return common };
            *next += 1;
            spelling.push(token, &*self.tokenizer);
            let both = a.unmatched.len().min(b.unmatched.len());
            if a.unmatched[..both] != b.unmatched[..both] {
                return common;
            }
            a.unmatched.drain(..both);
            b.unmatched.drain(..both);
            if a.length == b.length {
                common = (i, j);
            }
        }
    }
}

impl State {
    fn insert(&mut self, hash: u64, answer: Arc<[Token]>) {
        self.clock += 1;
        let entry = self.entries.entry(hash).or_default();
        entry.last_used = self.clock;
        if entry.answers.contains(&answer) {
            return;
        }
        self.tokens += cost(&answer);
        entry.answers.push(answer);
        if entry.answers.len() > MAX_ANSWERS_PER_PROMPT {
            self.tokens -= cost(&entry.answers.remove(0));
        }
        while self.tokens > MAX_TOKENS {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_used);
            let Some((&hash, _)) = oldest else { return };
            let evicted = self.entries.remove(&hash).expect("just found");
            self.tokens -= evicted.answers.iter().map(|answer| cost(answer)).sum::<usize>();
        }
    }

    fn find(&mut self, hash: u64) -> Option<Vec<Arc<[Token]>>> {
        let entry = self.entries.get_mut(&hash)?;
        self.clock += 1;
        entry.last_used = self.clock;
        Some(entry.answers.clone())
    }
}

/// The memory of an answer, in tokens.
fn cost(answer: &[Token]) -> usize {
    answer.len() + ENTRY_TOKENS
}

/// The hash of a prompt with one more token.
fn extend_hash(hash: u64, token: Token) -> u64 {
    hash64(hash, u64::from(token.0))
}

/// The bytes that tokens spell. Special tokens differ from text that looks like them.
#[derive(Default)]
struct Spelling {
    /// Bytes past the end of the other spelling.
    unmatched: Vec<u8>,
    /// All bytes.
    length: usize,
}

impl Spelling {
    fn push(&mut self, token: Token, tokenizer: &dyn Tokenizer) {
        let before = self.unmatched.len();
        if tokenizer.is_special(token) {
            self.unmatched.push(SPECIAL_TOKEN);
            self.unmatched.extend(token.0.to_le_bytes());
        } else {
            tokenizer.decode(token, &mut self.unmatched);
        }
        self.length += self.unmatched.len() - before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters from 0 on, pairs of letters from 100 on, the special token 200.
    struct LetterTokenizer;

    impl Tokenizer for LetterTokenizer {
        fn encode(&self, _: &str, _: &mut Vec<Token>) {
            unreachable!("these tests encode no text");
        }

        fn special_token(&self, _: &str) -> Option<Token> {
            None
        }

        fn is_special(&self, token: Token) -> bool {
            token.0 == 200
        }

        fn decode(&self, token: Token, out: &mut Vec<u8>) {
            let letter = |n: u32| b'a' + n as u8;
            match token.0 {
                n @ 0..100 => out.push(letter(n)),
                n => out.extend([letter((n - 100) / 10), letter((n - 100) % 10)]),
            }
        }

        fn vocab_size(&self) -> usize {
            201
        }
    }

    fn tokens(ids: &[u32]) -> Vec<Token> {
        ids.iter().copied().map(Token).collect()
    }

    fn key(ids: &[u32]) -> PromptKey {
        AnswerTokenCache::key(&tokens(ids))
    }

    fn substituted(cache: &AnswerTokenCache, ids: &[u32]) -> Vec<Token> {
        let mut prompt = tokens(ids);
        cache.substitute(&mut prompt);
        prompt
    }

    #[test]
    fn a_repeated_answer_gets_the_tokens_it_was_sampled_in() {
        let cache = AnswerTokenCache::new(Arc::new(LetterTokenizer));
        // "bc", then "d", where the vocabulary would have had "b", "cd".
        cache.insert(key(&[200, 5]), &tokens(&[112, 3, 200]));
        let next = substituted(&cache, &[200, 5, 1, 123, 200, 7]);
        assert_eq!(next, tokens(&[200, 5, 112, 3, 200, 7]));
        // The next message of the conversation, whose prompt begins with the substituted one.
        cache.insert(AnswerTokenCache::key(&next), &tokens(&[0, 0, 200]));
        let later = substituted(&cache, &[200, 5, 1, 123, 200, 7, 100, 200, 8]);
        assert_eq!(later, tokens(&[200, 5, 112, 3, 200, 7, 0, 0, 200, 8]));
    }

    #[test]
    fn text_that_differs_is_left_as_it_is() {
        let cache = AnswerTokenCache::new(Arc::new(LetterTokenizer));
        cache.insert(key(&[200, 5]), &tokens(&[112, 3, 200]));
        for other in [
            &[200, 4, 1, 123, 200][..],
            &[200, 5, 2, 123, 200],
            &[5, 1, 123, 200],
            &[200, 5, 1],
            &[200, 5],
            &[],
        ] {
            assert_eq!(substituted(&cache, other), tokens(other));
        }
        // A common prefix: "bc" again, then something else.
        assert_eq!(substituted(&cache, &[200, 5, 1, 2, 9]), tokens(&[200, 5, 112, 9]));
    }

    #[test]
    fn the_answer_with_the_longest_common_prefix_is_taken() {
        let cache = AnswerTokenCache::new(Arc::new(LetterTokenizer));
        cache.insert(key(&[200]), &tokens(&[112, 4]));
        cache.insert(key(&[200]), &tokens(&[112, 3]));
        cache.insert(key(&[200]), &tokens(&[113, 3]));
        assert_eq!(substituted(&cache, &[200, 1, 123]), tokens(&[200, 112, 3]));
    }

    #[test]
    fn the_memory_of_long_answers_is_bounded() {
        let cache = AnswerTokenCache::new(Arc::new(LetterTokenizer));
        let long = |token| vec![Token(token); MAX_TOKENS / 3 - 99];
        for i in 0..4 {
            cache.insert(key(&[i]), &long(i));
        }
        for i in 0..9 {
            cache.insert(key(&[3]), &tokens(&[i]));
        }
        let state = cache.lock();
        assert!(state.tokens <= MAX_TOKENS && state.entries.len() == 3, "{}", state.tokens);
        assert!(state.entries.values().all(|entry| entry.answers.len() <= MAX_ANSWERS_PER_PROMPT));
    }

    #[test]
    fn the_memory_of_short_answers_is_bounded() {
        let cache = AnswerTokenCache::new(Arc::new(LetterTokenizer));
        let max_answers = MAX_TOKENS / (ENTRY_TOKENS + 1);
        for i in 0..max_answers as u32 + 20 {
            cache.insert(key(&[i]), &tokens(&[1]));
        }
        let state = cache.lock();
        assert_eq!(
            (state.entries.len(), state.tokens),
            (max_answers, max_answers * (ENTRY_TOKENS + 1))
        );
    }
}
