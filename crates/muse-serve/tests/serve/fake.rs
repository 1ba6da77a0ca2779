//! A fake model whose answers a test chooses: an engine that emits a script, a tokenizer of bytes and
//! a template whose special tokens name the channel.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use muse_core::contract::{
    Channel, ContentToken, Conversation, Done, Engine, Event, FinishReason, GroupId, Message,
    OutputParser, ParsedEvent, Part, PromptPart, PromptTemplate, Request, Sampled, Sampling,
    Segment, SeqId, Sink, Timings, Token, Tokenizer, ToolCall, Usage, Verify,
};
use muse_core::{Error, Result};
use muse_serve::{App, ModelCard, ModelNames, ServeOptions, Server};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Special tokens, numbered from 256: the start of a message, the channel of what follows, the end
/// of the turn.
pub(crate) const SPECIAL_TOKENS: [&str; 5] =
    ["<|start|>", "<|reasoning|>", "<|content|>", "<|call|>", "<|eot|>"];
pub(crate) const REASONING: Token = Token(257);
pub(crate) const CONTENT: Token = Token(258);
pub(crate) const CALL: Token = Token(259);
pub(crate) const EOT: Token = Token(260);
pub(crate) const VOCAB: u32 = 261;
/// Positions of the model.
pub(crate) const MAX_POSITIONS: u32 = 512;

/// Tokens of a text.
pub(crate) fn bytes(text: &str) -> Vec<Token> {
    text.bytes().map(|byte| Token(byte.into())).collect()
}

/// An answer: special tokens, each followed by a text, and the end of the turn.
pub(crate) fn answer(parts: &[(Token, &str)]) -> Vec<Token> {
    let part = |&(special, text): &(Token, &str)| [vec![special], bytes(text)].concat();
    [parts.iter().flat_map(part).collect(), vec![EOT]].concat()
}

/// Emits its tokens, one a step.
pub(crate) struct ScriptedEngine {
    pub(crate) tokens: Vec<Token>,
    /// Emits the tokens again and again without the end of the turn, until the request ends.
    pub(crate) endless: bool,
    pub(crate) step: Duration,
    /// Positions of a sequence.
    pub(crate) max_positions: u32,
    /// Requests that may run at a time.
    pub(crate) max_num_seqs: usize,
    /// What it reports of speculation, as far as the tokens that it emitted.
    pub(crate) verifies: Vec<Verify>,
    /// An error after the last token.
    pub(crate) failure: Option<Error>,
    pub(crate) record: Arc<Record>,
}

/// The settings of a request.
pub(crate) struct Recorded {
    pub(crate) sampling: Sampling,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) min_tokens: u32,
    pub(crate) stop: Vec<Token>,
    pub(crate) priority: i32,
    pub(crate) group: Option<GroupId>,
}

/// What the engine was asked for and did.
#[derive(Default)]
pub(crate) struct Record {
    last: AtomicU64,
    running: Mutex<HashMap<SeqId, Arc<AtomicBool>>>,
    pub(crate) requests: Mutex<Vec<Recorded>>,
    /// Steps taken by all sequences.
    pub(crate) steps: AtomicU64,
    /// Sequences take no step while this is set.
    pub(crate) paused: AtomicBool,
}

/// Longer than any passing run waits, however slow the machine: only a hang reaches it.
pub(crate) const HANG: Duration = Duration::from_secs(600);

impl Record {
    pub(crate) fn running(&self) -> usize {
        self.running.lock().expect("no test panics here").len()
    }

    /// Waits until nothing runs.
    pub(crate) async fn idle(&self) {
        let limit = Instant::now() + HANG;
        while self.running() > 0 {
            assert!(Instant::now() < limit, "a sequence was not cancelled");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Default for ScriptedEngine {
    fn default() -> Self {
        Self {
            tokens: answer(&[(REASONING, "Hm é."), (CONTENT, "Grüße!")]),
            endless: false,
            step: Duration::ZERO,
            max_positions: MAX_POSITIONS,
            max_num_seqs: 64,
            verifies: vec![
                Verify { completion: 0, drafted: 15, accepted: 7 },
                Verify { completion: 0, drafted: 15, accepted: 2 },
            ],
            failure: None,
            record: Arc::default(),
        }
    }
}

impl Engine for ScriptedEngine {
    fn submit(&self, request: Request, mut sink: Sink) -> Result<SeqId> {
        let mut running = self.record.running.lock().expect("no test panics here");
        if running.len() >= self.max_num_seqs {
            let max_num_seqs = self.max_num_seqs;
            return Err(Error::Exhausted(format!(
                "all {max_num_seqs} sequences are running; retry later"
            )));
        }
        let seq = SeqId(self.record.last.fetch_add(1, Ordering::Relaxed));
        let ended = Arc::new(AtomicBool::new(false));
        running.insert(seq, ended.clone());
        let settings = Recorded {
            sampling: request.sampling.clone(),
            max_tokens: request.max_tokens,
            min_tokens: request.min_tokens,
            stop: request.stop.clone(),
            priority: request.priority,
            group: request.group,
        };
        self.record.requests.lock().expect("no test panics here").push(settings);
        let (tokens, failure, record) =
            (self.tokens.clone(), self.failure.clone(), self.record.clone());
        let (endless, step, max_positions) = (self.endless, self.step, self.max_positions);
        let verifies = self.verifies.clone();
        std::thread::spawn(move || {
            let tokens: Box<dyn Iterator<Item = Token>> = match endless {
                true => Box::new(tokens.into_iter().filter(|token| *token != EOT).cycle()),
                false => Box::new(tokens.into_iter()),
            };
            run(
                &request,
                tokens,
                step,
                max_positions,
                verifies,
                failure,
                &ended,
                &record,
                &mut sink,
            );
            record.running.lock().expect("no test panics here").remove(&seq);
        });
        Ok(seq)
    }

    fn cancel(&self, seq: SeqId) {
        if let Some(ended) = self.record.running.lock().expect("no test panics here").get(&seq) {
            ended.store(true, Ordering::Relaxed);
        }
    }
}

fn run(
    request: &Request,
    tokens: impl Iterator<Item = Token>,
    step: Duration,
    max_positions: u32,
    verifies: Vec<Verify>,
    failure: Option<Error>,
    ended: &AtomicBool,
    record: &Record,
    sink: &mut Sink,
) {
    let start = Instant::now();
    let prompt: u32 = request
        .prompt
        .iter()
        .map(|segment| match segment {
            Segment::Tokens(tokens) => tokens.len() as u32,
            Segment::Patches(_) => panic!("the fake has no vision"),
        })
        .sum();
    let max_tokens = request.max_tokens.unwrap_or(u32::MAX).min(max_positions - prompt);
    let mut usage =
        Usage { prompt, cached: 3.min(prompt - 1), verifies: Vec::new(), completion: 0 };
    let mut left = sink(Event::Prefill { done: prompt, total: prompt }).is_break();
    let mut reason = failure.map_or(FinishReason::Length, FinishReason::Failed);
    for token in tokens {
        std::thread::sleep(step);
        while record.paused.load(Ordering::Relaxed) && !ended.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if left || ended.load(Ordering::Relaxed) {
            reason = FinishReason::Cancelled;
            break;
        }
        if request.deadline.is_some_and(|deadline| start.elapsed() > deadline) {
            reason = FinishReason::Deadline;
            break;
        }
        if usage.completion == max_tokens {
            break;
        }
        usage.completion += 1;
        record.steps.fetch_add(1, Ordering::Relaxed);
        let top = vec![(token, -0.5); request.logprobs.unwrap_or(0) as usize];
        left = sink(Event::Token(Sampled { token, logprob: -0.5, top })).is_break();
        if request.stop.contains(&token) {
            reason = FinishReason::Stop(token);
            break;
        }
    }
    let timings = Timings {
        queued: Duration::from_millis(500),
        prefill: Duration::from_millis(250),
        decode: Duration::from_millis(1250),
    };
    let emitted = verifies.into_iter().filter(|verify| verify.completion <= usage.completion);
    usage.verifies = emitted.collect();
    if !left {
        let _ = sink(Event::Done(Done { reason, usage, timings }));
    }
}

pub(crate) struct ByteTokenizer;

impl Tokenizer for ByteTokenizer {
    fn encode(&self, text: &str, out: &mut Vec<Token>) {
        out.extend(bytes(text));
    }

    fn special_token(&self, spelling: &str) -> Option<Token> {
        SPECIAL_TOKENS.iter().position(|s| *s == spelling).map(|i| Token(256 + i as u32))
    }

    fn is_special(&self, token: Token) -> bool {
        token.0 >= 256
    }

    fn decode(&self, token: Token, out: &mut Vec<u8>) {
        match u8::try_from(token.0) {
            Ok(byte) => out.push(byte),
            Err(_) => out.extend(SPECIAL_TOKENS[token.0 as usize - 256].as_bytes()),
        }
    }

    fn vocab_size(&self) -> usize {
        VOCAB as usize
    }
}

/// Renders `<|start|>` and the text of each message.
struct FakeTemplate;

impl PromptTemplate for FakeTemplate {
    fn render(&self, conversation: &Conversation) -> Result<Vec<PromptPart>> {
        let mut parts = Vec::new();
        for message in &conversation.messages {
            parts.push(PromptPart::Special("<|start|>"));
            let (Message::System(content)
            | Message::User(content)
            | Message::Assistant { content, .. }
            | Message::Tool { content, .. }) = message;
            parts.extend(content.iter().map(|part| match part {
                Part::Text(text) => PromptPart::Text(text.clone()),
                Part::Image => PromptPart::Image(0),
                Part::Video => PromptPart::Video(0),
            }));
        }
        parts.push(PromptPart::Special("<|start|>"));
        Ok(parts)
    }

    fn output_parser(&self, _: &Conversation, stop: &[String]) -> Box<dyn OutputParser> {
        Box::new(FakeParser { stop: stop.to_vec(), ..FakeParser::default() })
    }
}

/// Parses the special tokens and bytes of the answer.
#[derive(Default)]
struct FakeParser {
    stop: Vec<String>,
    channel: Channel,
    special: bool,
    pending: Vec<u8>,
    calls: usize,
    tokens: usize,
    content: Vec<ContentToken>,
}

impl FakeParser {
    fn emit(&mut self, out: &mut Vec<ParsedEvent>) {
        let Ok(text) = String::from_utf8(self.pending.clone()) else { return };
        match self.channel {
            Channel::Content => {
                if let Some(stop) = self.stop.iter().find(|stop| text.ends_with(*stop)) {
                    out.push(ParsedEvent::StopText(stop.clone()));
                } else if self.stop.iter().any(|stop| stop.starts_with(&text)) {
                    return;
                } else {
                    let first = self.tokens - text.len();
                    let tokens = (first..self.tokens).map(|index| ContentToken { index, bytes: 1 });
                    self.content.extend(tokens);
                    out.push(ParsedEvent::Content(text));
                }
            }
            Channel::Reasoning => out.push(ParsedEvent::Reasoning(text)),
            Channel::Protocol | Channel::ToolCall => return,
        }
        self.pending.clear();
    }

    fn close(&mut self, out: &mut Vec<ParsedEvent>) {
        if self.channel == Channel::ToolCall {
            let arguments = String::from_utf8(std::mem::take(&mut self.pending)).expect("UTF-8");
            let id = format!("call-{}", self.calls);
            self.calls += 1;
            out.push(ParsedEvent::ToolCall(ToolCall { id, name: "count".to_owned(), arguments }));
        }
    }
}

impl OutputParser for FakeParser {
    fn push(&mut self, token: Token, out: &mut Vec<ParsedEvent>) {
        self.special = token.0 >= 256;
        self.tokens += 1;
        if let Ok(byte) = u8::try_from(token.0) {
            self.pending.push(byte);
            self.emit(out);
            return;
        }
        self.close(out);
        self.channel = match token {
            REASONING => Channel::Reasoning,
            CONTENT => Channel::Content,
            CALL => Channel::ToolCall,
            _ => Channel::Protocol,
        };
    }

    fn finish(&mut self, complete: bool, out: &mut Vec<ParsedEvent>) {
        if complete {
            self.close(out);
        }
    }

    fn channel(&self) -> Channel {
        if self.special { Channel::Protocol } else { self.channel }
    }

    fn content_tokens(&mut self, out: &mut Vec<ContentToken>) {
        out.append(&mut self.content);
    }
}

/// A model around an engine.
pub(crate) fn app(engine: impl Engine + 'static) -> App {
    App {
        model: ModelCard {
            name: "fake".to_owned(),
            architecture: "script".to_owned(),
            max_positions: MAX_POSITIONS,
            vocab: VOCAB,
            parameters: 1,
            formats: vec![("f32".to_owned(), 1.0)],
            backend: "none".to_owned(),
            draft_width: 15,
            loaded_at: 1_700_000_000,
        },
        engine: Arc::new(engine),
        tokenizer: Some(Arc::new(ByteTokenizer)),
        template: Some(Arc::new(FakeTemplate)),
        grammars: None,
        sampling: Sampling { temperature: 0.7, ..Sampling::default() },
        stop: vec![EOT],
        names: ModelNames { strict: true, ..ModelNames::default() },
    }
}

/// A server of this process.
pub(crate) struct Running {
    pub(crate) grpc: String,
    pub(crate) http: std::net::SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) task: JoinHandle<std::io::Result<()>>,
}

impl Running {
    /// Serves a model on free ports.
    pub(crate) async fn start(app: App) -> Self {
        Self::start_with(app, |_| {}).await
    }

    /// Serves with other options.
    pub(crate) async fn start_with(app: App, change: impl FnOnce(&mut ServeOptions)) -> Self {
        let free = "127.0.0.1:0".parse().expect("an address");
        let mut options = ServeOptions { grpc: free, http: free, ..ServeOptions::default() };
        change(&mut options);
        let server = Server::bind(Arc::new(app), options).await.expect("free ports");
        let (grpc, http) = (format!("http://{}", server.grpc_addr()), server.http_addr());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async { drop(stopped.await) }));
        Self { grpc, http, stop: Some(stop), task }
    }

    /// Begins to drain.
    pub(crate) fn stop(&mut self) {
        let stop = self.stop.take().expect("stopped once");
        stop.send(()).expect("the server waits for it");
    }
}
