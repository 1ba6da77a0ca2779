//! `muse bench --suite canonical`: fixed prompts of three kinds of text, each alone in an empty
//! cache, plain and with the drafter.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use muse_core::contract::{Conversation, FinishReason, Message, Part, Rates, Token};
use muse_serve::App;
use muse_serve::runtime::{ContentHashes, LoadOptions, estimate_memory};
use muse_serve::service::{DrainGuard, Service};
use sha2::{Digest, Sha256};

use super::completion::{Completion, CompletionRequest};
use super::machine;
use super::suite_record::{EndReason, Entry, Mode, SuiteRecord};
use crate::cli::args::BenchCommand;
use crate::cli::terminal::{Progress, Screen};
use crate::cli::{async_runtime, load, on_failure};

/// Prompts by kind of text.
const CANONICAL: &str = include_str!("canonical.json");
/// Tokens that are asked for.
pub(super) const TOKENS: u32 = 256;
/// The date in the prompts.
pub(super) const DATE: &str = "2026-01-01";
/// Room for the longest prompt and its completion.
const CONTEXT: u32 = 2048;
/// Tokens of the warm-up completion, which is not reported: memory is cold.
const WARM_UP: u32 = 8;

pub(super) fn run(command: &BenchCommand) -> Result<ExitCode> {
    let options = command.config.model(&command.model())?;
    if options.kv_disk.is_some() {
        bail!("the suite runs with an empty cache; leave out --kv-disk");
    }
    let context = options.context.or(Some(CONTEXT));
    let options =
        LoadOptions { context, default_max_parallel: 1, no_prefix_caching: true, ..options };
    estimate_memory(&options)?;
    let hashes = ContentHashes::of(&options)?;
    let load_average = machine::load_average();
    let loaded = load(&options)?;
    let (card, kv) = (loaded.card.clone(), loaded.plan.kv);
    let app = Arc::new(loaded.start(on_failure())?);
    let entries = entries(&app)?;
    let record = SuiteRecord {
        card,
        hashes,
        suite_hash: Sha256::digest(CANONICAL).iter().map(|byte| format!("{byte:02x}")).collect(),
        threads: options.threads.unwrap_or_else(machine::cores),
        kv,
        exact: options.exact,
        weights: options.weights,
        max_draft: options.max_draft,
        load_average: [load_average, machine::load_average()],
        entries,
    };
    let text = if command.json { format!("{}\n", record.json()) } else { record.to_string() };
    Screen::new().print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Every prompt, plain and, with a drafter, drafted.
fn entries(app: &Arc<App>) -> Result<Vec<Entry>> {
    let suite: BTreeMap<String, Vec<String>> = serde_json::from_str(CANONICAL)?;
    let count: usize = suite.values().map(Vec::len).sum();
    let prompts = suite.into_iter().flat_map(|(class, prompts)| {
        prompts.into_iter().map(move |prompt| (class.clone(), prompt))
    });
    let drafts = app.model.draft_width > 0;
    let (mut entries, mut progress) = (Vec::new(), Progress::new());
    for (i, (class, text)) in prompts.enumerate() {
        progress.show("measuring the suite", i as u64, count as u64);
        let what = || format!("prompt {} of {count} ({class})", i + 1);
        let prompt = render(app, &text)?;
        let run = |max_draft, max_tokens| {
            let request =
                CompletionRequest { prompt: &prompt, stop: &app.stop, max_tokens, max_draft };
            Completion::run(app, &request)
        };
        if i == 0 {
            run(Some(0), WARM_UP).with_context(what)?;
            drafts.then(|| run(None, WARM_UP)).transpose().with_context(what)?;
        }
        let plain = run(Some(0), TOKENS).with_context(what)?;
        let drafted = drafts.then(|| run(None, TOKENS)).transpose().with_context(what)?;
        let equal = drafted.as_ref().map(|drafted| drafted.tokens == plain.tokens);
        entries.push(Entry {
            class: class.clone(),
            prompt_tokens: prompt.len(),
            plain: mode(&plain)?,
            drafted: drafted.as_ref().map(mode).transpose()?,
            equal,
        });
    }
    Ok(entries)
}

/// The prompt of a conversation that begins with this text.
fn render(app: &Arc<App>, text: &str) -> Result<Vec<Token>> {
    let service = Service::new(app.clone(), DrainGuard::default());
    let conversation = Conversation {
        messages: vec![Message::User(vec![Part::Text(text.to_owned())])],
        current_date: Some(DATE.to_owned()),
        ..Conversation::default()
    };
    let runtime = async_runtime::start(0)?;
    let prompt = runtime.block_on(service.render(conversation));
    Ok(prompt.context("the suite is made of conversations")?.tokens)
}

fn mode(completion: &Completion) -> Result<Mode> {
    let usage = &completion.done.usage;
    if usage.cached > 0 {
        bail!("{} rows of a prompt came from the cache, which was to be empty", usage.cached);
    }
    let count = completion.tokens.len();
    let rates = Rates::of([(usage, &completion.done.timings)]);
    Ok(Mode {
        tokens: count,
        end: match completion.done.reason {
            FinishReason::Stop(_) => EndReason::Stop,
            _ if count < TOKENS as usize => EndReason::Context,
            _ => EndReason::MaxTokens,
        },
        decode: completion.rate(count),
        first_100: completion.rate(100),
        full: rates.tokens_per_second,
        prefill: rates.prefill_tokens_per_second,
        accepted: usage.accepted_by_verify().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_has_three_kinds_of_text() {
        let suite: BTreeMap<String, Vec<String>> = serde_json::from_str(CANONICAL).unwrap();
        assert!(suite.keys().eq(["code", "json", "prose"]), "{:?}", suite.keys());
        assert!(suite.values().all(|prompts| prompts.len() == 4));
    }
}
