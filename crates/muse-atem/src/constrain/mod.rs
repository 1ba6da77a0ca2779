//! Which tokens may come: answers that must be JSON, a pattern or one of some texts, calls that
//! must be made, and a budget of reasoning. The grammar speaks of a whole turn, headers included,
//! so it is armed from the first token behind the prompt and never by what the prompt says.

mod budget;
mod expression;
mod fault;
mod gate;
mod grammar;
mod native;
mod shape;
mod trie;
mod value;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Matcher, ParserFactory};
use muse_core::contract::{Constraint, Conversation, Tokenizer as _};
use muse_core::{Error, Result};

use crate::mark::Mark;
use crate::request::{ResponseFormat, ToolChoice};
use crate::tokenizer::Tokenizer;
use gate::Gate;
use grammar::GrammarConstraint;

pub use budget::ThinkingBudget;

/// Larger grammars are refused: no schema of people is, and compiling takes time and memory.
const MAX_GRAMMAR_BYTES: usize = 512 * 1024;

/// The same for expressions and grammars of a client's own, in which one long text slows every step.
const MAX_OWN_BYTES: usize = 32 * 1024;

/// The most bytes of one text that an answer or value can be.
const MAX_TEXT_BYTES: usize = 8 * 1024;

/// What the compiler may spend on expressions, in its own measure: with all limits on what it is
/// given, a grammar takes it about a second.
const MAX_LEXER_WORK: u64 = 400_000;

/// Stack to compile on: the compiler descends as deep as rules lead to rules, which is bounded by
/// the size of a grammar alone.
const COMPILER_STACK: usize = 512 << 20;

/// Compiled grammars that are kept.
const CACHED: usize = 64;

/// What the visible answer must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AnswerRule {
    /// Any text.
    #[default]
    Free,
    /// A JSON object.
    JsonObject,
    /// JSON that fits a schema, given as JSON text.
    JsonSchema(String),
    /// Text that matches a regular expression from its first letter to its last.
    Regex(String),
    /// Text of a grammar in the Lark syntax of llguidance.
    Lark(String),
    /// One of some texts.
    Choice(Vec<String>),
}

impl From<&ResponseFormat> for AnswerRule {
    fn from(format: &ResponseFormat) -> Self {
        match format {
            ResponseFormat::Text => Self::Free,
            ResponseFormat::JsonObject => Self::JsonObject,
            ResponseFormat::JsonSchema { schema, .. } => Self::JsonSchema(schema.clone()),
        }
    }
}

/// Compiles constraints over a checkpoint's tokens and keeps the compiled ones. Compiling can take
/// a while: not a thing for the engine's thread.
pub struct Grammars {
    factory: ParserFactory,
    tokenizer: Arc<Tokenizer>,
    cache: Mutex<Cache>,
    gate: Gate,
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
    /// [`Error::Corrupt`] when the vocabulary has no marks to end messages with.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Result<Self> {
        let environment = trie::environment(Arc::clone(&tokenizer))?;
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
            gate: Gate::new(),
            compiled: AtomicU64::new(0),
        })
    }

    /// How many grammars were compiled; what was kept from before is not compiled again.
    pub fn compiled(&self) -> u64 {
        self.compiled.load(Ordering::Relaxed)
    }

    /// The constraint of a turn; none when everything is allowed. Calls are bound where they must
    /// be made and where their tool is strict; with [`ToolChoice::None`] a bound answer leaves no
    /// calls, whatever tools the conversation declares, while a free one is not kept from them.
    ///
    /// The constraint refuses tokens that are not allowed and stays as it was; behind the end of
    /// the turn it takes any, since guesses may run on.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a schema or grammar cannot be honoured, or takes more work than one
    /// request may make: the message names the keyword or the fault.
    pub fn constraint(
        &self,
        conversation: &Conversation,
        choice: &ToolChoice,
        answer: &AnswerRule,
    ) -> Result<Option<Box<dyn Constraint>>> {
        self.constraint_while(conversation, choice, answer, &|| true)
    }

    /// [`Grammars::constraint`], given up once it is no longer `wanted`: asked while others compile
    /// and between the stages of this one.
    ///
    /// # Errors
    /// As [`Grammars::constraint`], and [`Error::Exhausted`] when it was given up.
    pub fn constraint_while(
        &self,
        conversation: &Conversation,
        choice: &ToolChoice,
        answer: &AnswerRule,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Option<Box<dyn Constraint>>> {
        let Some(turn) = native::turn(conversation, choice, answer, self.tokenizer.as_ref())?
        else {
            return Ok(None);
        };
        let matcher = self.compile(turn, answer, wanted)?;
        Ok(Some(Box::new(GrammarConstraint::new(matcher))))
    }

    fn compile(
        &self,
        turn: String,
        answer: &AnswerRule,
        wanted: &dyn Fn() -> bool,
    ) -> Result<Matcher> {
        let (kind, part) = match answer {
            AnswerRule::Regex(text) => ("regex", text.as_str()),
            AnswerRule::Lark(text) => ("lark", text.as_str()),
            _ => ("", ""),
        };
        check_size(&turn, part)?;
        let key = format!("{turn}\n%%{kind}\n{part}");
        if let Some(found) = self.lock().compiled.get(&key) {
            return Ok(found.deep_clone());
        }
        let given_up = || Error::Exhausted("the grammar was given up, nobody wants it".to_owned());
        let _place = self.gate.enter(&key, wanted).ok_or_else(given_up)?;
        // Whoever was before may have asked for the same.
        if let Some(found) = self.lock().compiled.get(&key) {
            return Ok(found.deep_clone());
        }
        self.compiled.fetch_add(1, Ordering::Relaxed);
        let matcher = self.create(grammar_of(turn, answer), answer)?;
        if let Some(fault) = matcher.get_error() {
            return Err(refused(answer, &fault));
        }
        if !wanted() {
            return Err(given_up());
        }
        self.try_answer(&matcher).map_err(|fault| refused(answer, &fault))?;
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
            // The compiler reckons with a client's numbers, unchecked: what it trips over is theirs.
            thread.join().map_err(|_| refused(answer, "the compiler panicked"))
        })
    }

    /// Follows a new grammar to where its answer begins. What leads nowhere or is too much to
    /// follow shows there, and here it costs nobody but the one who asked.
    fn try_answer(&self, matcher: &Matcher) -> std::result::Result<(), String> {
        let mut answer = matcher.deep_clone();
        let mut header = Vec::new();
        self.tokenizer.encode(" to=user", &mut header);
        header.extend(self.tokenizer.special_token(Mark::Message.text()));
        let header: Vec<u32> = header.iter().map(|token| token.0).collect();
        // Another turn begins with a call, or its header was committed already.
        if answer.validate_tokens(&header).map_err(|fault| fault.to_string())? == header.len() {
            answer.consume_tokens(&header).map_err(|fault| fault.to_string())?;
        }
        answer.compute_mask_or_eos().map(drop).map_err(|fault| fault.to_string())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Cache> {
        // The cache is a table of whole entries, sound after a panic elsewhere.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    fn put(&mut self, key: &str, matcher: Matcher) {
        if self.compiled.insert(key.to_owned(), matcher).is_none() {
            self.order.push_back(key.to_owned());
        }
        if self.order.len() > CACHED
            && let Some(oldest) = self.order.pop_front()
        {
            self.compiled.remove(&oldest);
        }
    }
}

/// Refuses grammars that are too long to try.
fn check_size(turn: &str, part: &str) -> Result<()> {
    let whole = turn.len() + part.len();
    if whole > MAX_GRAMMAR_BYTES {
        return Err(Error::Invalid(format!(
            "the grammar has {whole} bytes, at most {MAX_GRAMMAR_BYTES}; use smaller schemas"
        )));
    }
    if part.len() > MAX_OWN_BYTES {
        return Err(Error::Invalid(format!(
            "the grammar or expression has {} bytes, at most {MAX_OWN_BYTES}; use a smaller one",
            part.len()
        )));
    }
    Ok(())
}

/// The grammar of a turn with the client's own, if the answer has one.
fn grammar_of(turn: String, answer: &AnswerRule) -> TopLevelGrammar {
    let own = match answer {
        AnswerRule::Regex(regex) => Some(GrammarWithLexer::from_regex(regex)),
        AnswerRule::Lark(lark) => Some(GrammarWithLexer::from_lark(lark.clone())),
        _ => None,
    };
    let named = |grammar: GrammarWithLexer| GrammarWithLexer {
        name: Some(native::ANSWER.to_owned()),
        ..grammar
    };
    let mut grammars = vec![GrammarWithLexer::from_lark(turn)];
    grammars.extend(own.map(named));
    TopLevelGrammar { grammars, max_tokens: None }
}

/// The fault of a grammar, as whoever wrote it can understand it.
fn refused(answer: &AnswerRule, fault: &str) -> Error {
    let (what, why) = match answer {
        AnswerRule::Regex(_) => ("the regular expression", fault::told(fault)),
        // It is written in the compiler's language, as its faults are; behind the first line
        // stands the rest of the turn.
        AnswerRule::Lark(_) => ("the grammar", fault.lines().next().unwrap_or_default().to_owned()),
        AnswerRule::JsonSchema(_) => ("the JSON schema", fault::told(fault)),
        AnswerRule::Choice(_) => ("the choice of texts", fault::told(fault)),
        AnswerRule::Free | AnswerRule::JsonObject => ("the schema of a tool", fault::told(fault)),
    };
    Error::Invalid(format!("{what} cannot be honoured: {why}"))
}
