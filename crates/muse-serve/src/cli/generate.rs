//! `muse generate`: a raw prompt completed, and the logits of its tokens.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use muse_core::contract::{Token, Tokenizer};
use muse_proto::v1::generate_service_server::GenerateService;
use muse_proto::v1::{self, generate_response::Event};
use muse_serve::grpc::GenerateApi;
use muse_serve::runtime::{LoadOptions, Loaded};
use muse_weights::NewFile;
use serde_json::json;
use tokio_stream::StreamExt;

use super::answer::{reason, timings, usage};
use super::args::GenerateCommand;
use super::interrupt;
use super::terminal::{Progress, Screen};
use super::{async_runtime, load, on_failure, safetensors, standard_input};

/// Begins every text.
const BOS: &str = "<|begin_of_text|>";

pub(super) fn run(command: &GenerateCommand) -> Result<ExitCode> {
    let text = match command.prompt.as_deref() {
        Some("-") => Some(standard_input::read("the prompt")?),
        text => text.map(str::to_owned),
    };
    let file = command
        .logits
        .as_deref()
        .map(|path| NewFile::create(path).with_context(|| format!("--logits {}", path.display())));
    let file = file.transpose()?;
    if file.is_some() {
        interrupt::remove_incomplete_files()?;
    }
    let options = LoadOptions { logits: file.is_some(), ..command.config.model(&command.model)? };
    let mut loaded = load(&options)?;
    let tokenizer = loaded.tokenizer().cloned();
    let prompt = prompt(command, text.as_deref(), tokenizer.as_deref())?;
    if let Some(file) = file {
        write_logits(&mut loaded, &prompt, file).context("the file of --logits")?;
    }
    let max_tokens = command.max_tokens.and_then(|max| max.0);
    let request = v1::GenerateRequest {
        prompt_ids: prompt.iter().map(|token| token.0).collect(),
        sampling: Some(command.sampling.message()),
        limits: Some(v1::Limits { max_tokens, ..v1::Limits::default() }),
        ignore_model_stop: command.ignore_stop,
        ..v1::GenerateRequest::default()
    };
    let service = GenerateApi::new(Arc::new(loaded.start(on_failure())?));
    let runtime = async_runtime::start(0)?;
    let mut completion = Completion::new(tokenizer.is_some() && !command.json);
    runtime.block_on(completion.follow(&service, request))?;
    completion.finish(command.json, tokenizer.is_some())
}

/// What the command line asks to continue.
fn prompt(
    command: &GenerateCommand,
    text: Option<&str>,
    tokenizer: Option<&dyn Tokenizer>,
) -> Result<Vec<Token>> {
    let Some(text) = text else {
        return Ok(command.ids.iter().copied().map(Token).collect());
    };
    let Some(tokenizer) = tokenizer else {
        bail!("the checkpoint has no tokenizer, so --prompt cannot be read; use --ids 1,2,3");
    };
    let mut tokens = Vec::new();
    if !command.no_bos && !text.starts_with(BOS) {
        tokens.extend(tokenizer.special_token(BOS));
    }
    encode_with_special_tokens(tokenizer, text, &mut tokens);
    if tokens.is_empty() {
        bail!("--prompt is empty and nothing begins the text; give it at least a character");
    }
    Ok(tokens)
}

/// Encodes text in which special tokens, spelled in full, are encoded as special tokens.
fn encode_with_special_tokens(tokenizer: &dyn Tokenizer, text: &str, tokens: &mut Vec<Token>) {
    let (mut plain, mut from) = (0, 0);
    while let Some(at) = text[from..].find("<|").map(|at| from + at) {
        let end = text[at..].find("|>").map(|end| at + end + 2);
        let special = end.and_then(|end| Some((tokenizer.special_token(&text[at..end])?, end)));
        match special {
            Some((token, end)) => {
                tokenizer.encode(&text[plain..at], tokens);
                tokens.push(token);
                (plain, from) = (end, end);
            }
            None => from = at + 2,
        }
    }
    tokenizer.encode(&text[plain..], tokens);
}

fn write_logits(loaded: &mut Loaded, prompt: &[Token], file: NewFile) -> Result<()> {
    let mut out = BufWriter::new(file);
    let shape = [prompt.len(), loaded.card.vocab as usize];
    out.write_all(&safetensors::header("logits", shape))?;
    let mut progress = Progress::new();
    let (mut failed, mut done) = (None, 0);
    loaded.logits(prompt, &mut |rows| {
        let write = rows.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()));
        failed = write.err();
        done += rows.len() / shape[1];
        progress.show("scoring", done as u64, shape[0] as u64);
        if failed.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(out.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?),
    }
}

/// A completion as it grows.
struct Completion {
    ids: Vec<u32>,
    bytes: Vec<u8>,
    /// How many of `bytes` were shown; none shows nothing.
    shown: Option<usize>,
    /// Bytes of the last token, which may turn out to be the stop token.
    last: usize,
    usage: v1::Usage,
    finish: Option<v1::Finish>,
    screen: Screen,
    progress: Progress,
}

impl Completion {
    fn new(show: bool) -> Self {
        Self {
            ids: Vec::new(),
            bytes: Vec::new(),
            shown: show.then_some(0),
            last: 0,
            usage: v1::Usage::default(),
            finish: None,
            screen: Screen::new(),
            progress: Progress::new(),
        }
    }

    async fn follow(&mut self, service: &GenerateApi, request: v1::GenerateRequest) -> Result<()> {
        let status_error = |status: tonic::Status| anyhow!("{}", status.message());
        let events = service.generate(tonic::Request::new(request)).await.map_err(status_error)?;
        let mut events = events.into_inner();
        while let Some(response) = events.next().await {
            match response.map_err(status_error)?.event {
                Some(Event::Progress(progress)) => {
                    self.progress.show("reading", progress.done.into(), progress.total.into());
                }
                Some(Event::Tokens(delta)) => {
                    self.progress.clear();
                    delta.tokens.into_iter().try_for_each(|token| self.take(token))?;
                }
                Some(Event::Usage(usage)) => self.usage = usage,
                Some(Event::Finish(finish)) => self.finish = Some(finish),
                None => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, token: v1::Token) -> io::Result<()> {
        self.ids.push(token.id);
        self.show(self.bytes.len())?;
        self.bytes.extend_from_slice(&token.bytes);
        self.last = token.bytes.len();
        Ok(())
    }

    /// Shows whole characters up to `end`.
    fn show(&mut self, end: usize) -> io::Result<()> {
        let Some(from) = self.shown else { return Ok(()) };
        let fresh = &self.bytes[from..end];
        let whole = match std::str::from_utf8(fresh) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => fresh.len(),
        };
        self.shown = Some(from + whole);
        self.screen.print(&String::from_utf8_lossy(&fresh[..whole]))
    }

    fn finish(mut self, json: bool, text: bool) -> Result<ExitCode> {
        self.progress.clear();
        let finish = self.finish.take().context("the completion ended early; run it again")?;
        if json {
            let all = json!({
                "ids": self.ids,
                "text": text.then(|| String::from_utf8_lossy(&self.bytes)),
                "finish_reason": reason(finish.reason()),
                "accepted": self.usage.accepted_drafts,
                "usage": usage(&self.usage),
                "timings": timings(&self.usage),
            });
            self.screen.print(&format!("{all}\n"))?;
        } else if text {
            let stopped = finish.reason() == v1::FinishReason::Stop;
            let end = self.bytes.len() - if stopped { self.last } else { 0 };
            self.show(end)?;
            self.screen.print("\n")?;
        } else {
            let ids: Vec<String> = self.ids.iter().map(u32::to_string).collect();
            self.screen.print(&format!("{}\n", ids.join(",")))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One token a character, and one special token.
    struct CharTokenizer;

    impl Tokenizer for CharTokenizer {
        fn encode(&self, text: &str, out: &mut Vec<Token>) {
            out.extend(text.chars().map(|c| Token(c as u32)));
        }
        fn special_token(&self, spelling: &str) -> Option<Token> {
            (spelling == "<|x|>").then_some(Token(1000))
        }
        fn is_special(&self, token: Token) -> bool {
            token.0 == 1000
        }
        fn decode(&self, _: Token, _: &mut Vec<u8>) {
            unreachable!("nothing is decoded here")
        }
        fn vocab_size(&self) -> usize {
            1001
        }
    }

    #[test]
    fn special_tokens_are_encoded_and_look_alikes_stay_text() {
        let x = "X".to_owned();
        for (text, expected) in [
            ("a<|x|>b", "aXb"),
            ("<|x|><|x|>", "XX"),
            ("<|y|><|x|>", "<|y|>X"),
            ("<|<|x|>", "<|X"),
            ("<|x|", "<|x|"),
            ("é<|é|>", "é<|é|>"),
            ("", ""),
        ] {
            let mut tokens = Vec::new();
            encode_with_special_tokens(&CharTokenizer, text, &mut tokens);
            let spelled = tokens.iter().map(|token| match token.0 {
                1000 => x.clone(),
                letter => char::from_u32(letter).expect("a letter").to_string(),
            });
            assert_eq!(spelled.collect::<String>(), expected);
        }
    }
}
