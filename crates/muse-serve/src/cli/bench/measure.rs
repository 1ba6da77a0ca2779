//! Measures prompts, decoding and verifying, pass by pass and through the engine.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use muse_core::contract::{LogitsRequest, Token};
use muse_core::hash::hash64;
use muse_serve::App;
use muse_serve::runtime::backends::Backends;
use muse_serve::runtime::{LoadOptions, Loaded, MemoryPlan, PassWork, Roofline, estimate_memory};

use super::completion::{Completion, CompletionRequest};
use super::machine;
use super::record::{Measure, Measurement, Record};
use super::samples::Samples;
use crate::cli::args::BenchCommand;
use crate::cli::terminal::{Progress, Screen};
use crate::cli::{load, on_failure};

/// Time to measure each limit of the device, before and again after the model was measured.
const ROOFLINE_TIME: Duration = Duration::from_millis(300);
const KV_BLOCK: u32 = muse_core::contract::KV_BLOCK_SIZE as u32;

pub(super) fn run(command: &BenchCommand) -> Result<ExitCode> {
    let options = options(command)?;
    // What is missing or makes no sense is refused before anything is measured or loaded.
    check(command, &estimate_memory(&options)?)?;
    let threads = options.threads.unwrap_or_else(machine::cores);
    let measure = || Backends::default().measure_roofline(&options, ROOFLINE_TIME);
    let before = measure()?;
    let load_average = machine::load_average();
    let began = Instant::now();
    let mut loaded = load(&options)?;
    let (load_time, resident) = (began.elapsed(), machine::resident());
    let (card, plan, work) = (loaded.card.clone(), loaded.plan.clone(), loaded.work);
    let mut lines = passes(command, &mut loaded)?;
    let app = loaded.start(on_failure())?;
    lines.extend(decode(command, &app)?);
    drop(app);
    let record = Record {
        card,
        threads,
        exact: options.exact,
        weights: options.weights,
        plan,
        work,
        load_time,
        resident,
        load_average: [load_average, machine::load_average()],
        roofline: before.max(measure()?),
        repeats: command.repeats,
        lines,
    };
    let text = if command.json { format!("{}\n", record.json()) } else { record.to_string() };
    Screen::new().print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Room for the longest measurement and no more, unless the user says otherwise.
fn options(command: &BenchCommand) -> Result<LoadOptions> {
    let options = command.config.model(&command.model())?;
    let most = |list: &[u32]| list.iter().copied().max().unwrap_or(0);
    if [&command.prompt, &command.rows].into_iter().flatten().any(|&rows| rows == 0) {
        bail!("a pass of 0 rows measures nothing; -p and --rows take numbers from 1");
    }
    let decoded = most(&command.depth).max(1).saturating_add(command.tokens.saturating_add(1));
    let room = most(&command.prompt).max(most(&command.rows)).max(decoded);
    Ok(LoadOptions {
        context: options
            .context
            .or(Some(room.checked_next_multiple_of(KV_BLOCK).unwrap_or(u32::MAX))),
        default_max_parallel: 1,
        logits: true,
        ..options
    })
}

/// Tokens of no meaning, the same for everybody.
fn tokens(count: u32, vocab: u32) -> Vec<Token> {
    (0..count).map(|i| Token((hash64(0, u64::from(i)) % u64::from(vocab)) as u32)).collect()
}

/// Refuses passes with more logits than a pass gives.
fn check(command: &BenchCommand, plan: &MemoryPlan) -> Result<()> {
    let max = plan.max_logits_rows;
    match command.rows.iter().find(|&&rows| rows as usize > max) {
        Some(rows) => bail!(
            "--rows {rows}: a pass gives logits of at most {max} tokens here; give smaller --rows"
        ),
        None => Ok(()),
    }
}

/// The passes to measure: prompts, and verifies with one row of logits and with all.
fn measures(command: &BenchCommand) -> Vec<Measure> {
    let prompts = command.prompt.iter().map(|&rows| Measure::Prompt { rows: rows as usize });
    // The last row of one row is all of them.
    let verifies = command.rows.iter().flat_map(|&rows| {
        let verify = |all| Measure::Rows { rows: rows as usize, all };
        [false, true].map(verify).into_iter().take(if rows == 1 { 1 } else { 2 })
    });
    prompts.chain(verifies).collect()
}

/// Prompts and verifies, in turn, so that what disturbs one disturbs all.
fn passes(command: &BenchCommand, loaded: &mut Loaded) -> Result<Vec<Measurement>> {
    let vocab = loaded.card.vocab;
    let mut runner = loaded.model_runner()?;
    let max_tokens = runner.limits().max_num_batched_tokens;
    let measures = measures(command);
    let longest = measures.iter().map(|measure| measure.rows()).max().unwrap_or(0);
    let tokens = tokens(longest as u32, vocab);
    let mut samples = vec![Samples::default(); measures.len()];
    let mut progress = Progress::new();
    // What comes first finds cold memory and is left out.
    for repeat in 0..=command.repeats {
        progress.show("measuring passes", repeat.into(), command.repeats.into());
        for (measure, samples) in measures.iter().zip(&mut samples) {
            let mut time = Duration::ZERO;
            let prompt = &tokens[..measure.rows()];
            runner.reset()?;
            // Rows that a pass cannot take at once go one chunk after the other.
            for (i, chunk) in prompt.chunks(max_tokens).enumerate() {
                let last = (i + 1) * max_tokens >= prompt.len();
                let began = Instant::now();
                runner.forward(chunk, if last { measure.logits() } else { LogitsRequest::None })?;
                time += began.elapsed();
                if !last {
                    runner.commit(chunk);
                }
            }
            if repeat > 0 {
                samples.0.push(time.as_secs_f64());
            }
        }
    }
    let lines = measures.into_iter().zip(samples);
    Ok(lines.map(|(measure, seconds)| Measurement { measure, seconds, accepted: None }).collect())
}

/// Single tokens through the engine, without and with a drafter.
fn decode(command: &BenchCommand, app: &App) -> Result<Vec<Measurement>> {
    let mut lines = Vec::new();
    if command.tokens == 0 {
        return Ok(lines);
    }
    let mut progress = Progress::new();
    for (i, &depth) in command.depth.iter().enumerate() {
        progress.show("measuring decode", i as u64, command.depth.len() as u64);
        let prompt = tokens(depth.max(1), app.model.vocab);
        let drafts = [Some(0), None];
        let drafts = &drafts[..if app.model.draft_width > 0 { 2 } else { 1 }];
        let mut found = vec![(Samples::default(), Samples::default()); drafts.len()];
        for repeat in 0..=command.repeats {
            for (&max_draft, (seconds, accepted)) in drafts.iter().zip(&mut found) {
                let max_tokens = command.tokens.saturating_add(1);
                let request =
                    CompletionRequest { prompt: &prompt, stop: &[], max_tokens, max_draft };
                let Completion { done, .. } = Completion::run(app, &request)?;
                if repeat > 0 {
                    seconds.0.push(done.timings.decode.as_secs_f64());
                    let verifies = done.usage.verifies.len().max(1) as f64;
                    accepted.0.push(f64::from(done.usage.accepted()) / verifies);
                }
            }
        }
        for (&max_draft, (seconds, accepted)) in drafts.iter().zip(found) {
            let (tokens, drafted) = (command.tokens as usize, max_draft.is_none());
            let measure = Measure::Decode { depth, tokens, drafted };
            lines.push(Measurement {
                measure,
                seconds,
                accepted: drafted.then(|| accepted.median()),
            });
        }
    }
    Ok(lines)
}

/// What a measure takes at least.
pub(super) fn min_time(
    measure: &Measure,
    work: &PassWork,
    roofline: &Roofline,
) -> Option<Duration> {
    match *measure {
        Measure::Decode { drafted: true, .. } => None,
        Measure::Decode { tokens, .. } => Some(work.min_time(1, 1, roofline) * tokens as u32),
        _ => Some(work.min_time(measure.rows(), measure.scored(), roofline)),
    }
}
