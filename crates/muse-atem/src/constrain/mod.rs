//! Constrains which tokens may be sampled: answers that must be JSON, match a pattern or be one of
//! several texts, calls that must be made, and a budget of reasoning. A grammar describes the whole
//! answer with its headers, so it applies from the first generated token, whatever the prompt
//! contains.

mod answer_grammar;
mod compile_slots;
mod explain;
mod finite;
mod grammar;
mod lark;
mod limits;
mod parameter_value;
mod reasoning_budget;
mod regex;
mod schema_check;
mod token_trie;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Matcher, ParserFactory};
use muse_core::contract::{Constraint, Conversation, Tokenizer as _};
use muse_core::{Error, Result};

use crate::answer_prefix::AnswerPrefix;
use crate::answer_rule::AnswerRule;
use crate::encode::encode;
use crate::gbnf;
use crate::request::ToolChoice;
use crate::special_token::SpecialToken;
use crate::tokenizer::Tokenizer;
use compile_slots::CompileSlots;
use grammar::GrammarConstraint;
use limits::MAX_GRAMMAR_BYTES;

pub use reasoning_budget::ReasoningBudget;

/// The largest regular expression or grammar written by a client, in bytes: a long text in one
/// slows down every step.
const MAX_CLIENT_BYTES: usize = 32 * 1024;

/// The compiler's budget for regular expressions, in its own unit. With all limits on its input,
/// compiling a grammar takes about a second.
const MAX_LEXER_WORK: u64 = 400_000;

/// Stack of the thread that compiles: the compiler recurses as deep as rules refer to rules, which
/// only the size of the grammar bounds.
const COMPILER_STACK: usize = 512 << 20;

/// The most compiled grammars that are kept.
const MAX_CACHED: usize = 64;

/// Compiles constraints over a checkpoint's tokens and caches them. Compiling can take a second, so
/// it must not run on the engine's thread.
pub struct Grammars {
    factory: ParserFactory,
    tokenizer: Arc<Tokenizer>,
    cache: Mutex<Cache>,
    slots: CompileSlots,
    compiled: AtomicU64,
}

#[derive(Default)]
struct Cache {
    compiled: HashMap<String, Matcher>,
    order: VecDeque<String>,
}

impl Grammars {
    /// A compiler for the tokens of a checkpoint.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the vocabulary lacks a special token.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Result<Self> {
        let environment = token_trie::environment(Arc::clone(&tokenizer))?;
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory =
            ParserFactory::new(&environment, InferenceCapabilities::default(), &slices)
                .map_err(|e| Error::Corrupt(format!("vocabulary: no token trie: {e}")))?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.max_grammar_size = 200_000;
        limits.max_lexer_states = 50_000;
        limits.initial_lexer_fuel = MAX_LEXER_WORK;
        limits.verbose_errors = false;
        Ok(Self {
            factory,
            tokenizer,
            cache: Mutex::default(),
            slots: CompileSlots::new(),
            compiled: AtomicU64::new(0),
        })
    }

    /// How many grammars were compiled; cached ones are not compiled again.
    pub fn compiled(&self) -> u64 {
        self.compiled.load(Ordering::Relaxed)
    }

    /// The constraint of an answer; none when everything is allowed. Calls are constrained where
    /// one is required and where their tool is strict. With [`ToolChoice::None`], a constrained
    /// answer allows no calls whatever tools the conversation declares; an unconstrained one is not
    /// kept from calling.
    ///
    /// A token that is not allowed is refused and changes nothing. After the end of the answer any
    /// token is accepted, since drafts may run past it.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a schema or grammar cannot be honoured, or takes more work than one
    /// request may cause; the message names the keyword.
    pub fn constraint(
        &self,
        conversation: &Conversation,
        choice: &ToolChoice,
        answer: &AnswerRule,
    ) -> Result<Option<Box<dyn Constraint>>> {
        self.constraint_while(conversation, choice, answer, &|| true)
    }

    /// [`Grammars::constraint`], cancelled once `keep_going` returns false: it is asked while
    /// waiting for other compilations and between the stages of this one.
    ///
    /// # Errors
    /// As [`Grammars::constraint`], and [`Error::Exhausted`] when it was cancelled.
    pub fn constraint_while(
        &self,
        conversation: &Conversation,
        choice: &ToolChoice,
        answer: &AnswerRule,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Option<Box<dyn Constraint>>> {
        let Some(grammar) =
            answer_grammar::answer_grammar(conversation, choice, answer, self.tokenizer.as_ref())?
        else {
            return Ok(None);
        };
        let mut matcher = self.compile(grammar, answer, keep_going)?;
        if let Some(prefix) = AnswerPrefix::of(&conversation.answer_prefix) {
            self.continue_text(&mut matcher, prefix)?;
        }
        Ok(Some(Box::new(GrammarConstraint::new(matcher))))
    }

    /// Advances a constraint by the text of the message that the answer continues.
    fn continue_text(&self, matcher: &mut Matcher, prefix: AnswerPrefix<'_>) -> Result<()> {
        let tokens = encode(prefix.text, self.tokenizer.as_ref())?;
        let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
        if matcher.validate_tokens(&ids).map_err(explain::too_complex)? < ids.len() {
            return Err(Error::Invalid(
                "the message to continue does not fit what the answer must be; change one of them"
                    .to_owned(),
            ));
        }
        matcher.consume_tokens(&ids).map_err(explain::too_complex)
    }

    fn compile(
        &self,
        grammar: String,
        answer: &AnswerRule,
        keep_going: &dyn Fn() -> bool,
    ) -> Result<Matcher> {
        let own = ClientGrammar::of(answer)?;
        let key = check_size(&grammar, own.as_ref())?;
        if let Some(found) = self.lock().compiled.get(&key) {
            return Ok(found.deep_clone());
        }
        let cancelled = || {
            Error::Exhausted("the request was cancelled while its grammar was compiled".to_owned())
        };
        let _slot = self.slots.acquire(&key, keep_going).ok_or_else(cancelled)?;
        // Another request may have compiled the same grammar meanwhile.
        if let Some(found) = self.lock().compiled.get(&key) {
            return Ok(found.deep_clone());
        }
        self.compiled.fetch_add(1, Ordering::Relaxed);
        let matcher = self.create(grammar_of(grammar, own), answer)?;
        if let Some(error) = matcher.get_error() {
            return Err(refused(answer, &error));
        }
        if !keep_going() {
            return Err(cancelled());
        }
        self.check_answer_start(&matcher).map_err(|error| refused(answer, &error))?;
        self.lock().put(&key, matcher.deep_clone());
        Ok(matcher)
    }

    fn create(&self, grammar: TopLevelGrammar, answer: &AnswerRule) -> Result<Matcher> {
        std::thread::scope(|scope| {
            let compile = || Matcher::new(self.factory.create_parser(grammar));
            let thread = std::thread::Builder::new().name("grammar".to_owned());
            let thread = thread.stack_size(COMPILER_STACK).spawn_scoped(scope, compile);
            let thread = thread.map_err(|e| {
                Error::Exhausted(format!("no thread to compile a grammar on: {e}; try again"))
            })?;
            // The compiler computes with the client's numbers unchecked, so a panic is caused by
            // the request.
            thread.join().map_err(|_| refused(answer, "the compiler panicked"))
        })
    }

    /// Advances a copy of a new grammar to where its answer begins. A grammar that allows nothing
    /// or is too expensive fails here, before it reaches the engine.
    fn check_answer_start(&self, matcher: &Matcher) -> std::result::Result<(), String> {
        let mut answer = matcher.deep_clone();
        let mut header = Vec::new();
        self.tokenizer.encode(" to=user", &mut header);
        header.extend(self.tokenizer.special_token(SpecialToken::Message.text()));
        let header: Vec<u32> = header.iter().map(|token| token.0).collect();
        // Other answers begin with a call, or their header is in the prompt already.
        if answer.validate_tokens(&header).map_err(|error| error.to_string())? == header.len() {
            answer.consume_tokens(&header).map_err(|error| error.to_string())?;
        }
        answer.compute_mask_or_eos().map(drop).map_err(|error| error.to_string())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Cache> {
        // The cache holds complete entries only, so it is consistent after a panic elsewhere.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    fn put(&mut self, key: &str, matcher: Matcher) {
        if self.compiled.insert(key.to_owned(), matcher).is_none() {
            self.order.push_back(key.to_owned());
        }
        if self.order.len() > MAX_CACHED
            && let Some(oldest) = self.order.pop_front()
        {
            self.compiled.remove(&oldest);
        }
    }
}

/// A grammar or expression that a client wrote, as the compiler takes it.
enum ClientGrammar {
    Regex(String),
    Lark(String),
}

impl ClientGrammar {
    fn of(answer: &AnswerRule) -> Result<Option<Self>> {
        let (source, grammar) = match answer {
            AnswerRule::Regex(regex) => (regex, Self::Regex(regex.clone())),
            AnswerRule::Lark(lark) => (lark, Self::Lark(lark.clone())),
            AnswerRule::Gbnf(gbnf) => {
                let lark = gbnf::translate(gbnf).map_err(Error::Invalid)?;
                (gbnf, Self::Lark(lark))
            }
            _ => return Ok(None),
        };
        if source.len() > MAX_CLIENT_BYTES {
            return Err(Error::Invalid(format!(
                "the grammar or expression has {} bytes, at most {MAX_CLIENT_BYTES}; use a smaller \
                 one",
                source.len()
            )));
        }
        Ok(Some(grammar))
    }
}

/// Refuses grammars that are too large to compile. Returns the key to keep the compiled one by.
fn check_size(grammar: &str, own: Option<&ClientGrammar>) -> Result<String> {
    let (kind, own) = match own {
        Some(ClientGrammar::Regex(text)) => ("regex", text.as_str()),
        Some(ClientGrammar::Lark(text)) => ("lark", text.as_str()),
        None => ("", ""),
    };
    let bytes = grammar.len() + own.len();
    if bytes > MAX_GRAMMAR_BYTES {
        return Err(Error::Invalid(format!(
            "the grammar has {bytes} bytes, at most {MAX_GRAMMAR_BYTES}; use smaller schemas"
        )));
    }
    Ok(format!("{grammar}\n%%{kind}\n{own}"))
}

/// The grammar of an answer, with the client's own grammar when there is one.
fn grammar_of(grammar: String, own: Option<ClientGrammar>) -> TopLevelGrammar {
    let own = own.map(|own| match own {
        ClientGrammar::Regex(regex) => GrammarWithLexer::from_regex(&regex),
        ClientGrammar::Lark(lark) => GrammarWithLexer::from_lark(lark),
    });
    let named = |grammar: GrammarWithLexer| GrammarWithLexer {
        name: Some(answer_grammar::ANSWER.to_owned()),
        ..grammar
    };
    let mut grammars = vec![GrammarWithLexer::from_lark(grammar)];
    grammars.extend(own.map(named));
    TopLevelGrammar { grammars, max_tokens: None }
}

/// The error of a grammar, in words for the client who wrote it.
fn refused(answer: &AnswerRule, error: &str) -> Error {
    let (what, why) = match answer {
        AnswerRule::Regex(_) => ("the regular expression", explain::explain(error)),
        AnswerRule::Lark(source) => ("the grammar", lark::explain(source, error)),
        AnswerRule::Gbnf(_) => ("the GBNF grammar", explain::explain(error)),
        AnswerRule::JsonSchema(_) => ("the JSON schema", explain::explain(error)),
        AnswerRule::Choice(_) => ("the choice of texts", explain::explain(error)),
        AnswerRule::Free | AnswerRule::JsonObject => {
            ("the schema of a tool", explain::explain(error))
        }
    };
    Error::Invalid(format!("{what} cannot be honoured: {why}"))
}
