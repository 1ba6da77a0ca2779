//! What the model said, as the tokens it said it in. The same text can be spelled by other tokens; a
//! history that repeats an answer is read as the answer's own, so that the cache knows its rows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muse_core::contract::{Token, Tokenizer};
use muse_core::hash::hash64;

/// Tokens of answers that are remembered, each answer's entry included; the longest unused are
/// forgotten for new ones.
const MOST_TOKENS: usize = 1 << 20;
/// Tokens that take as much room as the entry of an answer.
const ENTRY: usize = 32;
/// Answers to one prompt.
const MOST_ALIKE: usize = 4;
/// Stands before the number of a mark. No text has this byte.
const MARK: u8 = 0xff;

/// Answers by the prompts they were given to.
pub(super) struct Turns {
    tokenizer: Arc<dyn Tokenizer>,
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    answers: HashMap<u64, Answers>,
    tokens: usize,
    clock: u64,
}

#[derive(Default)]
struct Answers {
    /// The newest last.
    spelled: Vec<Arc<[Token]>>,
    used: u64,
}

impl Turns {
    pub(super) fn new(tokenizer: Arc<dyn Tokenizer>) -> Self {
        Self { tokenizer, said: Mutex::default() }
    }

    /// The store is consistent after every statement: a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what was said to a prompt.
    pub(super) fn remember(&self, prompt: &[Token], said: &[Token]) {
        if said.is_empty() || room(said) > MOST_TOKENS {
            return;
        }
        let name = prompt.iter().fold(0, |name, &token| longer(name, token));
        self.lock().keep(name, said.into());
    }

    /// Rereads the answers in a prompt as they were said, as far as they are repeated.
    pub(super) fn recall(&self, prompt: &mut Vec<Token>) {
        let (mut name, mut at) = (0, 0);
        while at < prompt.len() {
            name = longer(name, prompt[at]);
            at += 1;
            let Some(answers) = self.lock().find(name) else { continue };
            let rest = &prompt[at..];
            let best = answers.iter().map(|said| (self.repeated(said, rest), said));
            if let Some(((said, read), answer)) = best.max_by_key(|((said, _), _)| *said)
                && answer[..said] != rest[..read]
            {
                prompt.splice(at..at + read, answer[..said].iter().copied());
            }
        }
    }

    /// How many tokens of `said` spell the same as how many of `rest`, from the first on.
    fn repeated(&self, said: &[Token], rest: &[Token]) -> (usize, usize) {
        let (mut a, mut b) = (Spelling::default(), Spelling::default());
        let (mut i, mut j, mut alike) = (0, 0, (0, 0));
        loop {
            // The shorter goes on.
            let (next, one, tokens) = match a.length <= b.length {
                true => (&mut i, &mut a, said),
                false => (&mut j, &mut b, rest),
            };
            let Some(&token) = tokens.get(*next) else { return alike };
            *next += 1;
            one.add(token, &*self.tokenizer);
            let both = a.ahead.len().min(b.ahead.len());
            if a.ahead[..both] != b.ahead[..both] {
                return alike;
            }
            a.ahead.drain(..both);
            b.ahead.drain(..both);
            if a.length == b.length {
                alike = (i, j);
            }
        }
    }
}

impl Said {
    fn keep(&mut self, name: u64, said: Arc<[Token]>) {
        self.clock += 1;
        let answers = self.answers.entry(name).or_default();
        answers.used = self.clock;
        if answers.spelled.contains(&said) {
            return;
        }
        self.tokens += room(&said);
        answers.spelled.push(said);
        if answers.spelled.len() > MOST_ALIKE {
            self.tokens -= room(&answers.spelled.remove(0));
        }
        while self.tokens > MOST_TOKENS {
            let oldest = self.answers.iter().min_by_key(|(_, answers)| answers.used);
            let Some((&name, _)) = oldest else { return };
            let gone = self.answers.remove(&name).expect("just found");
            self.tokens -= gone.spelled.iter().map(|said| room(said)).sum::<usize>();
        }
    }

    fn find(&mut self, name: u64) -> Option<Vec<Arc<[Token]>>> {
        let answers = self.answers.get_mut(&name)?;
        self.clock += 1;
        answers.used = self.clock;
        Some(answers.spelled.clone())
    }
}

/// The room of an answer, in tokens.
fn room(said: &[Token]) -> usize {
    said.len() + ENTRY
}

/// Name of a prompt with a token more.
fn longer(name: u64, token: Token) -> u64 {
    hash64(name, u64::from(token.0))
}

/// What tokens spell, marks told apart from text that looks like them.
#[derive(Default)]
struct Spelling {
    /// Bytes that the other has not come to.
    ahead: Vec<u8>,
    /// All bytes.
    length: usize,
}

impl Spelling {
    fn add(&mut self, token: Token, tokenizer: &dyn Tokenizer) {
        let before = self.ahead.len();
        if tokenizer.is_special(token) {
            self.ahead.push(MARK);
            self.ahead.extend(token.0.to_le_bytes());
        } else {
            tokenizer.decode(token, &mut self.ahead);
        }
        self.length += self.ahead.len() - before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Letters from 0 on, pairs of letters from 100 on, a mark 200.
    struct Letters;

    impl Tokenizer for Letters {
        fn encode(&self, _: &str, _: &mut Vec<Token>) {
            unreachable!("nothing is read");
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

    fn recalled(turns: &Turns, ids: &[u32]) -> Vec<Token> {
        let mut prompt = tokens(ids);
        turns.recall(&mut prompt);
        prompt
    }

    #[test]
    fn a_repeated_answer_is_read_as_it_was_said() {
        let turns = Turns::new(Arc::new(Letters));
        // "bc", then "d", where the vocabulary would have had "b", "cd".
        turns.remember(&tokens(&[200, 5]), &tokens(&[112, 3, 200]));
        let next = recalled(&turns, &[200, 5, 1, 123, 200, 7]);
        assert_eq!(next, tokens(&[200, 5, 112, 3, 200, 7]));
        // A turn later, behind the prompt as it was recalled.
        turns.remember(&next, &tokens(&[0, 0, 200]));
        let later = recalled(&turns, &[200, 5, 1, 123, 200, 7, 100, 200, 8]);
        assert_eq!(later, tokens(&[200, 5, 112, 3, 200, 7, 0, 0, 200, 8]));
    }

    #[test]
    fn what_differs_is_left_as_it_is() {
        let turns = Turns::new(Arc::new(Letters));
        turns.remember(&tokens(&[200, 5]), &tokens(&[112, 3, 200]));
        for other in [
            &[200, 4, 1, 123, 200][..],
            &[200, 5, 2, 123, 200],
            &[5, 1, 123, 200],
            &[200, 5, 1],
            &[200, 5],
            &[],
        ] {
            assert_eq!(recalled(&turns, other), tokens(other));
        }
        // As far as it goes: "bc" again, then something else.
        assert_eq!(recalled(&turns, &[200, 5, 1, 2, 9]), tokens(&[200, 5, 112, 9]));
    }

    #[test]
    fn the_answer_that_repeats_most_is_taken() {
        let turns = Turns::new(Arc::new(Letters));
        turns.remember(&tokens(&[200]), &tokens(&[112, 4]));
        turns.remember(&tokens(&[200]), &tokens(&[112, 3]));
        turns.remember(&tokens(&[200]), &tokens(&[113, 3]));
        assert_eq!(recalled(&turns, &[200, 1, 123]), tokens(&[200, 112, 3]));
    }

    #[test]
    fn memory_is_bounded() {
        let turns = Turns::new(Arc::new(Letters));
        let long = |token| vec![Token(token); MOST_TOKENS / 3 - 99];
        for i in 0..4 {
            turns.remember(&tokens(&[i]), &long(i));
        }
        for i in 0..9 {
            turns.remember(&tokens(&[3]), &tokens(&[i]));
        }
        let said = turns.lock();
        assert!(said.tokens <= MOST_TOKENS && said.answers.len() == 3, "{}", said.tokens);
        assert!(said.answers.values().all(|answers| answers.spelled.len() <= MOST_ALIKE));
    }

    #[test]
    fn short_answers_do_not_add_up() {
        let turns = Turns::new(Arc::new(Letters));
        let most = MOST_TOKENS / (ENTRY + 1);
        for i in 0..most as u32 + 20 {
            turns.remember(&tokens(&[i]), &tokens(&[1]));
        }
        let said = turns.lock();
        assert_eq!((said.answers.len(), said.tokens), (most, most * (ENTRY + 1)));
    }
}
