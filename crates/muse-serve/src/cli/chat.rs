//! `muse chat`: one answer or a conversation.

use std::io::{self, BufRead, IsTerminal};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow, bail};
use muse_proto::v1;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio_stream::StreamExt;
use tonic::Status;

use super::answer::{Answer, message, usage_line};
use super::args::ChatCommand;
use super::link::Link;
use super::prompt::Prompt;
use super::standard_input;
use super::stream_printer::StreamPrinter;
use super::terminal::Screen;
use super::{async_runtime, load, on_failure, print_error, tools};

const HELP: &str = "\
/clear  forget the conversation
/help   show this
/quit   leave (also Ctrl-D, and Ctrl-C on an empty line)
Ctrl-C  stop the answer that is being given, or clear the line
";

/// The most times that tools are called before the user gets an answer.
const MAX_ROUNDS: usize = 8;

/// What a shell expects of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

pub(super) fn run(command: ChatCommand) -> Result<ExitCode> {
    let input = Input::of(&command)?;
    let runtime = async_runtime::start(2)?;
    let link = match &command.server {
        Some(url) => runtime.block_on(Link::server(url))?,
        None => {
            let loaded = load(&command.config.model(&command.model)?)?;
            if loaded.tokenizer().is_none() {
                bail!("the checkpoint has no tokenizer; use `muse generate --ids`");
            }
            Link::local(Arc::new(loaded.start(on_failure())?))
        }
    };
    let interrupt = Interrupt::watch(&runtime)?;
    let session = ChatSession {
        link,
        interrupt,
        request: base_request(&command),
        quiet: command.json,
        tools: command.tools,
        screen: Screen::new(),
        runtime,
    };
    match input {
        Input::Message(text) => session.once(text),
        Input::Lines => session.lines(),
        Input::Terminal => session.converse(command.system),
    }
}

/// What the user asks.
#[derive(Debug, PartialEq)]
enum Input {
    /// One message.
    Message(String),
    /// Each line of standard input, as text.
    Lines,
    /// Lines typed at a terminal, text or commands.
    Terminal,
}

impl Input {
    /// From the arguments and what stands at standard input, which is read here unless it is a
    /// terminal that a conversation is held at, or read by lines.
    fn of(command: &ChatCommand) -> Result<Self> {
        let is_terminal = io::stdin().is_terminal();
        let text = match command.message.as_deref() {
            _ if command.line_by_line => return Ok(Self::Lines),
            None if is_terminal => return Ok(Self::Terminal),
            Some(text) if text != "-" && is_terminal => text.to_owned(),
            None | Some("-") => standard_input::read("the message")?,
            Some(text) => match standard_input::read("what is appended to the message")? {
                piped if piped.trim().is_empty() => text.to_owned(),
                piped => format!("{text}\n\n{piped}"),
            },
        };
        if text.trim().is_empty() {
            bail!("the message is empty; give one as an argument or at standard input");
        }
        Ok(Self::Message(text))
    }
}

/// The request that every turn of the conversation grows.
fn base_request(command: &ChatCommand) -> v1::ChatRequest {
    let max_tokens = command.max_tokens.and_then(|max| max.0);
    let system = command.system.iter().cloned().map(|text| message(v1::Role::System, text));
    v1::ChatRequest {
        conversation: Some(v1::Conversation {
            messages: system.collect(),
            reasoning_strength: command.reasoning.map_or(0, |strength| strength.message().into()),
            current_date: command.date.clone().unwrap_or_else(today),
            tools: if command.tools { tools::declared() } else { Vec::new() },
            ..v1::Conversation::default()
        }),
        sampling: Some(command.sampling.message()),
        limits: Some(v1::Limits { max_tokens, ..v1::Limits::default() }),
        ..v1::ChatRequest::default()
    }
}

/// A conversation in progress.
struct ChatSession {
    link: Link,
    interrupt: Interrupt,
    request: v1::ChatRequest,
    /// Shows nothing of an answer while it comes.
    quiet: bool,
    /// Runs the calls that the model makes.
    tools: bool,
    screen: Screen,
    runtime: Runtime,
}

/// What a line of the user leads to.
enum Next {
    Continue,
    Quit,
}

impl ChatSession {
    fn once(mut self, text: String) -> Result<ExitCode> {
        let answer = self.answer(text)?;
        if self.quiet {
            self.screen.print(&format!("{}\n", answer.json()))?;
        }
        Ok(match answer.finish {
            Some(_) => ExitCode::SUCCESS,
            None => ExitCode::from(INTERRUPTED),
        })
    }

    /// Answers every line, whatever it holds.
    fn lines(mut self) -> Result<ExitCode> {
        for line in io::stdin().lock().lines() {
            let line = line.context(standard_input::NOT_UTF8)?;
            if !line.trim().is_empty() {
                self.answer(line.trim().to_owned())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn converse(mut self, system: Option<String>) -> Result<ExitCode> {
        let system = system.map(|text| message(v1::Role::System, text));
        let fresh: Vec<v1::Message> = system.into_iter().collect();
        let mut prompt = Prompt::default();
        self.screen.print_dimmed("/help lists the commands.\n")?;
        while let Some(line) = prompt.read()? {
            match self.push(&line, &fresh) {
                Ok(Next::Continue) => {}
                Ok(Next::Quit) => break,
                Err(error) if super::is_broken_pipe(&error) => return Err(error),
                Err(error) => print_error(&error),
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Takes a line typed at the terminal: a command or what the user says.
    fn push(&mut self, line: &str, fresh: &[v1::Message]) -> Result<Next> {
        match line.trim() {
            "" => {}
            "/quit" | "/exit" => return Ok(Next::Quit),
            "/help" => self.screen.print_dimmed(HELP)?,
            "/clear" => self.conversation().messages = fresh.to_vec(),
            command if command.starts_with('/') && !command.contains(char::is_whitespace) => {
                return Err(anyhow!("no command {command}; /help lists them"));
            }
            text => {
                self.answer(text.to_owned())?;
            }
        }
        Ok(Next::Continue)
    }

    fn conversation(&mut self) -> &mut v1::Conversation {
        self.request.conversation.get_or_insert_default()
    }

    /// Has the model answer `text`, running the tools it calls on the way. All of it stays in the
    /// conversation unless nothing was answered, as when it was stopped while it reasoned.
    fn answer(&mut self, text: String) -> Result<Answer> {
        let before = self.conversation().messages.len();
        self.conversation().messages.push(message(v1::Role::User, text));
        let answer = self.answer_with_tools();
        if !answer.as_ref().is_ok_and(Answer::is_visible) {
            self.conversation().messages.truncate(before);
        }
        answer
    }

    /// Asks until the model answers the user instead of a tool.
    fn answer_with_tools(&mut self) -> Result<Answer> {
        let mut results = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let mut answer = Answer::default();
            self.stream_answer(&mut answer)?;
            if self.tools && !self.quiet && answer.finish.is_some() {
                eprintln!("({})", usage_line(&answer.usage));
            }
            self.conversation().messages.push(answer.clone().into_message());
            if !self.tools || answer.calls.is_empty() {
                return Ok(Answer { results, ..answer });
            }
            if answer.finish.is_none() {
                // Stopped between its calls: a turn with calls and no results makes no sense.
                return Ok(Answer::default());
            }
            for call in &answer.calls {
                let result = tools::run(&call.name, &call.arguments_json);
                if !self.quiet {
                    self.screen.print_dimmed(&format!("result {result}\n"))?;
                }
                self.conversation().messages.push(v1::Message {
                    tool_call_id: call.id.clone(),
                    tool_name: call.name.clone(),
                    ..message(v1::Role::Tool, result.clone())
                });
                results.push((call.clone(), result));
            }
        }
        bail!("the model called tools {MAX_ROUNDS} times and gave no answer; ask in another way")
    }

    fn stream_answer(&mut self, answer: &mut Answer) -> Result<()> {
        let stop = self.interrupt.arm();
        let mut printer = StreamPrinter::new(&mut self.screen, self.quiet);
        let (link, request) = (&mut self.link, self.request.clone());
        let outcome = self.runtime.block_on(async {
            let mut events = tokio::select! {
                events = link.ask(request) => events.map_err(status_error)?,
                () = stop.notified() => return Ok(()),
            };
            loop {
                let event = tokio::select! {
                    event = events.next() => event,
                    () = stop.notified() => return Ok(()),
                };
                let Some(response) = event else { break };
                let Some(event) = response.map_err(status_error)?.event else { continue };
                printer.push(&event)?;
                answer.push(event);
            }
            match answer.finish {
                Some(_) => Ok(()),
                None => Err(anyhow!("the server ended the answer early; ask again")),
            }
        });
        self.interrupt.disarm();
        printer.end()?;
        outcome?;
        match answer.finish {
            None if !self.quiet => eprintln!("(stopped)"),
            Some(v1::FinishReason::Length) if !self.quiet => {
                eprintln!("(cut: the limit on tokens is used up)");
            }
            _ => {}
        }
        Ok(())
    }
}

/// Ctrl-C: ends the answer being given, or the program when there is none.
struct Interrupt(Arc<Mutex<Option<Arc<Notify>>>>);

impl Interrupt {
    /// SIGINT is handled from now on: an editor of lines that comes later puts this handler back.
    fn watch(runtime: &Runtime) -> Result<Self> {
        let armed: Arc<Mutex<Option<Arc<Notify>>>> = Arc::default();
        let watched = Arc::clone(&armed);
        let mut signals = {
            let _context = runtime.enter();
            signal(SignalKind::interrupt())?
        };
        runtime.spawn(async move {
            while signals.recv().await.is_some() {
                match &*watched.lock().expect("no holder of this lock panics") {
                    Some(stop) => stop.notify_one(),
                    None => std::process::exit(INTERRUPTED.into()),
                }
            }
        });
        Ok(Self(armed))
    }

    /// From now on Ctrl-C notifies the returned one.
    fn arm(&self) -> Arc<Notify> {
        let stop = Arc::new(Notify::new());
        *self.0.lock().expect("no holder of this lock panics") = Some(Arc::clone(&stop));
        stop
    }

    fn disarm(&self) {
        *self.0.lock().expect("no holder of this lock panics") = None;
    }
}

fn status_error(status: Status) -> anyhow::Error {
    let message = status.message();
    // What the server says has no source, what became of the connection has one.
    match std::error::Error::source(&status) {
        None => anyhow!("{message}"),
        Some(_) => anyhow!(
            "{message}; is --server the address of gRPC, and does `muse serve` still run there?"
        ),
    }
}

/// Today's date in UTC, `YYYY-MM-DD`.
fn today() -> String {
    jiff::Timestamp::now().to_zoned_datetime(jiff::tz::TimeZone::UTC).date().to_string()
}
