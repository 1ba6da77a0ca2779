//! A model that says what a test wants: an engine with a script, a tokenizer of bytes and a
//! template whose marks name the channel.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use muse_core::contract::{
    Channel, Conversation, Done, Engine, Event, FinishReason, Message, OutputParser, ParsedEvent,
    Part, PromptPart, PromptTemplate, Request, Sampled, Sampling, Segment, SeqId, Sink, Timings,
    Token, Tokenizer, ToolCall, Usage,
};
use muse_core::{Error, Result};
use muse_serve::{App, ModelCard, ServeOptions, Server};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Marks, numbered from 256: the channel of what follows, and the end of a turn.
pub(crate) const MARKS: [&str; 5] = ["<|start|>", "<|think|>", "<|say|>", "<|call|>", "<|eot|>"];
pub(crate) const THINK: Token = Token(257);
pub(crate) const SAY: Token = Token(258);
pub(crate) const CALL: Token = Token(259);
pub(crate) const EOT: Token = Token(260);
pub(crate) const VOCAB: u32 = 261;
/// Positions of the model.
pub(crate) const ROOM: u32 = 512;

/// Tokens of a text.
pub(crate) fn bytes(text: &str) -> Vec<Token> {
    text.bytes().map(|byte| Token(byte.into())).collect()
}

/// An answer: marks and texts in turn.
pub(crate) fn answer(parts: &[(Token, &str)]) -> Vec<Token> {
    let part = |&(mark, text): &(Token, &str)| [vec![mark], bytes(text)].concat();
    [parts.iter().flat_map(part).collect(), vec![EOT]].concat()
}

/// Says its script, a token a step.
pub(crate) struct Script {
    pub(crate) tokens: Vec<Token>,
    /// Says the script again and again without its end, until the request ends.
    pub(crate) endless: bool,
    pub(crate) step: Duration,
    /// Positions the engine believes in.
    pub(crate) room: u32,
    /// Requests that fit in.
    pub(crate) places: usize,
    /// What happens instead of the end of the script.
    pub(crate) failure: Option<Error>,
    pub(crate) seen: Arc<Seen>,
}

/// What the engine saw.
#[derive(Default)]
pub(crate) struct Seen {
    last: AtomicU64,
    running: Mutex<HashMap<SeqId, Arc<AtomicBool>>>,
    pub(crate) asked: Mutex<Vec<(Sampling, Option<u32>)>>,
    /// Steps taken by all sequences.
    pub(crate) steps: AtomicU64,
}

impl Seen {
    pub(crate) fn running(&self) -> usize {
        self.running.lock().expect("no test panics here").len()
    }

    /// Waits until nothing runs.
    pub(crate) async fn idle(&self) {
        let limit = Instant::now() + Duration::from_secs(10);
        while self.running() > 0 {
            assert!(Instant::now() < limit, "a sequence was not cancelled");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Default for Script {
    fn default() -> Self {
        Self {
            tokens: answer(&[(THINK, "Hm é."), (SAY, "Grüße!")]),
            endless: false,
            step: Duration::ZERO,
            room: ROOM,
            places: 64,
            failure: None,
            seen: Arc::default(),
        }
    }
}

impl Engine for Script {
    fn submit(&self, request: Request, mut sink: Sink) -> Result<SeqId> {
        let mut running = self.seen.running.lock().expect("no test panics here");
        if running.len() >= self.places {
            let places = self.places;
            return Err(Error::Exhausted(format!("all {places} places are taken; retry later")));
        }
        let seq = SeqId(self.seen.last.fetch_add(1, Ordering::Relaxed));
        let ended = Arc::new(AtomicBool::new(false));
        running.insert(seq, ended.clone());
        let asked = (request.sampling.clone(), request.max_draft);
        self.seen.asked.lock().expect("no test panics here").push(asked);
        let (tokens, failure, seen) =
            (self.tokens.clone(), self.failure.clone(), self.seen.clone());
        let (endless, step, room) = (self.endless, self.step, self.room);
        std::thread::spawn(move || {
            let tokens: Box<dyn Iterator<Item = Token>> = match endless {
                true => Box::new(tokens.into_iter().filter(|token| *token != EOT).cycle()),
                false => Box::new(tokens.into_iter()),
            };
            run(&request, tokens, step, room, failure, &ended, &seen, &mut sink);
            seen.running.lock().expect("no test panics here").remove(&seq);
        });
        Ok(seq)
    }

    fn cancel(&self, seq: SeqId) {
        if let Some(ended) = self.seen.running.lock().expect("no test panics here").get(&seq) {
            ended.store(true, Ordering::Relaxed);
        }
    }
}

fn run(
    request: &Request,
    tokens: impl Iterator<Item = Token>,
    step: Duration,
    room: u32,
    failure: Option<Error>,
    ended: &AtomicBool,
    seen: &Seen,
    sink: &mut Sink,
) {
    let start = Instant::now();
    let prompt: u32 = request
        .prompt
        .iter()
        .map(|segment| match segment {
            Segment::Tokens(tokens) => tokens.len() as u32,
            Segment::Patches(_) => panic!("the fake reads text"),
        })
        .sum();
    let most = request.max_tokens.unwrap_or(u32::MAX).min(room - prompt);
    let mut usage = Usage {
        prompt,
        cached: 3.min(prompt - 1),
        drafted: 30,
        accepted: vec![7, 2],
        completion: 0,
    };
    let mut left = sink(Event::Prefill { done: prompt, total: prompt }).is_break();
    let mut reason = failure.map_or(FinishReason::Length, FinishReason::Failed);
    for token in tokens {
        std::thread::sleep(step);
        if left || ended.load(Ordering::Relaxed) {
            reason = FinishReason::Cancelled;
            break;
        }
        if request.deadline.is_some_and(|deadline| start.elapsed() > deadline) {
            reason = FinishReason::Deadline;
            break;
        }
        if usage.completion == most {
            break;
        }
        usage.completion += 1;
        seen.steps.fetch_add(1, Ordering::Relaxed);
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
    if !left {
        let _ = sink(Event::Done(Done { reason, usage, timings }));
    }
}

struct Bytes;

impl Tokenizer for Bytes {
    fn encode(&self, text: &str, out: &mut Vec<Token>) {
        out.extend(bytes(text));
    }

    fn special_token(&self, mark: &str) -> Option<Token> {
        MARKS.iter().position(|m| *m == mark).map(|i| Token(256 + i as u32))
    }

    fn is_special(&self, token: Token) -> bool {
        token.0 >= 256
    }

    fn decode(&self, token: Token, out: &mut Vec<u8>) {
        match u8::try_from(token.0) {
            Ok(byte) => out.push(byte),
            Err(_) => out.extend(MARKS[token.0 as usize - 256].as_bytes()),
        }
    }

    fn vocab_size(&self) -> usize {
        VOCAB as usize
    }
}

/// Renders `<|start|>` and the text of each turn, and listens to the marks of the answer.
struct Plain;

impl PromptTemplate for Plain {
    fn render(&self, conversation: &Conversation) -> Result<Vec<PromptPart>> {
        let mut pieces = Vec::new();
        for turn in &conversation.messages {
            pieces.push(PromptPart::Special("<|start|>"));
            let (Message::System(content)
            | Message::User(content)
            | Message::Assistant { content, .. }
            | Message::Tool { content, .. }) = turn;
            pieces.extend(content.iter().map(|part| match part {
                Part::Text(text) => PromptPart::Text(text.clone()),
                Part::Image => PromptPart::Image(0),
                Part::Video => PromptPart::Video(0),
            }));
        }
        pieces.push(PromptPart::Special("<|start|>"));
        Ok(pieces)
    }

    fn output_parser(&self, _: &Conversation, stop: &[String]) -> Box<dyn OutputParser> {
        Box::new(Ear { stop: stop.to_vec(), ..Ear::default() })
    }
}

#[derive(Default)]
struct Ear {
    stop: Vec<String>,
    channel: Channel,
    frame: bool,
    held: Vec<u8>,
    calls: usize,
}

impl Ear {
    fn tell(&mut self, out: &mut Vec<ParsedEvent>) {
        let Ok(text) = String::from_utf8(self.held.clone()) else { return };
        match self.channel {
            Channel::Content => {
                if let Some(stop) = self.stop.iter().find(|stop| text.ends_with(*stop)) {
                    out.push(ParsedEvent::StopText(stop.clone()));
                } else if self.stop.iter().any(|stop| stop.starts_with(&text)) {
                    return;
                } else {
                    out.push(ParsedEvent::Content(text));
                }
            }
            Channel::Reasoning => out.push(ParsedEvent::Reasoning(text)),
            Channel::Protocol | Channel::ToolCall => return,
        }
        self.held.clear();
    }

    fn close(&mut self, out: &mut Vec<ParsedEvent>) {
        if self.channel == Channel::ToolCall {
            let arguments = String::from_utf8(std::mem::take(&mut self.held)).expect("UTF-8");
            let id = format!("call-{}", self.calls);
            self.calls += 1;
            out.push(ParsedEvent::ToolCall(ToolCall { id, name: "count".to_owned(), arguments }));
        }
    }
}

impl OutputParser for Ear {
    fn push(&mut self, token: Token, out: &mut Vec<ParsedEvent>) {
        self.frame = token.0 >= 256;
        if let Ok(byte) = u8::try_from(token.0) {
            self.held.push(byte);
            self.tell(out);
            return;
        }
        self.close(out);
        self.channel = match token {
            THINK => Channel::Reasoning,
            SAY => Channel::Content,
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
        if self.frame { Channel::Protocol } else { self.channel }
    }
}

/// A model around an engine.
pub(crate) fn app(engine: impl Engine + 'static) -> App {
    App {
        model: ModelCard {
            name: "fake".to_owned(),
            architecture: "script".to_owned(),
            max_positions: ROOM,
            vocab: VOCAB,
            parameters: 1,
            formats: vec![("f32".to_owned(), 1.0)],
            backend: "none".to_owned(),
            draft_width: 15,
            loaded_at: 1_700_000_000,
        },
        engine: Arc::new(engine),
        tokenizer: Some(Arc::new(Bytes)),
        template: Some(Arc::new(Plain)),
        grammars: None,
        sampling: Sampling { temperature: 0.7, ..Sampling::default() },
        stop: vec![EOT],
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
