//! What a suite showed, as a table and as one JSON object that is enough to run it again.

use std::fmt;

use muse_core::contract::KvType;
use muse_core::hash::hash64;
use muse_core::model::BfpPolicy;
use muse_serve::ModelCard;
use muse_serve::runtime::ContentHashes;
use serde_json::{Value, json};

use super::machine;
use super::samples::Samples;
use super::suite::{DATE, TOKENS};

/// Drawings of the bootstrap, and its seed.
const DRAWINGS: u64 = 10_000;
const SEED: u64 = 1;

/// Why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndReason {
    /// All tokens that were asked for are there.
    MaxTokens,
    /// The model sampled a stop token.
    Stop,
    /// The positions of `--context` were used up.
    Context,
}

/// One completion.
pub(super) struct Mode {
    pub(super) tokens: usize,
    pub(super) end: EndReason,
    /// None for a single token.
    pub(super) decode: Option<f64>,
    /// None when fewer than 100 came.
    pub(super) first_100: Option<f64>,
    pub(super) full: f64,
    pub(super) prefill: f64,
    /// Draft tokens kept of each verify that carried drafts.
    pub(super) accepted: Vec<u32>,
}

/// One prompt.
pub(super) struct Entry {
    pub(super) class: String,
    pub(super) prompt_tokens: usize,
    pub(super) plain: Mode,
    pub(super) drafted: Option<Mode>,
    /// Whether both gave the same tokens.
    pub(super) equal: Option<bool>,
}

/// A run of a suite.
pub(super) struct SuiteRecord {
    pub(super) card: ModelCard,
    pub(super) hashes: ContentHashes,
    pub(super) suite_hash: String,
    pub(super) threads: usize,
    pub(super) kv: KvType,
    pub(super) exact: bool,
    /// What matrices were rounded to.
    pub(super) weights: Option<BfpPolicy>,
    pub(super) max_draft: Option<u32>,
    /// Before and after.
    pub(super) load_average: [Option<f64>; 2],
    pub(super) entries: Vec<Entry>,
}

impl SuiteRecord {
    /// The record that scripts read.
    pub(super) fn json(&self) -> Value {
        let Self { card, hashes, .. } = self;
        let entry = |entry: &Entry| {
            json!({
                "class": entry.class,
                "prompt_tokens": entry.prompt_tokens,
                "plain": entry.plain.json(),
                "drafted": entry.drafted.as_ref().map(Mode::json),
                "drafted_equals_plain": entry.equal,
            })
        };
        json!({
            "record": "muse-bench-suite 1",
            "version": env!("CARGO_PKG_VERSION"),
            "suite": { "name": "canonical", "sha256": self.suite_hash, "date": DATE },
            "model": {
                "name": card.name,
                "content_sha256": hashes.model,
                "formats": card.formats,
                "parameters": card.parameters,
            },
            "drafter": hashes.drafter.as_ref().map(|hash| json!({
                "content_sha256": hash,
                "width": card.draft_width,
                "max_draft": self.max_draft,
                "length": if self.max_draft.is_some() { "fixed" } else { "adaptive" },
            })),
            "backend": card.backend,
            "threads": self.threads,
            "kv": format!("{:?}", self.kv).to_lowercase(),
            "exact": self.exact,
            "weights": self.weights.map(|mix| format!("{mix:?}").to_lowercase()),
            "sampling": "greedy",
            "max_tokens": TOKENS,
            "cache": "cold",
            "machine": machine::describe(),
            "load_average": self.load_average,
            "definitions": definitions(),
            "plain": summary(&self.of(|entry| Some(&entry.plain))),
            "drafted": self.has_drafts().then(|| summary(&self.of(|entry| entry.drafted.as_ref()))),
            "drafted_equals_plain": self.equal(),
            "prompts": self.entries.iter().map(entry).collect::<Vec<_>>(),
        })
    }

    fn has_drafts(&self) -> bool {
        self.entries.iter().any(|entry| entry.drafted.is_some())
    }

    /// Whether all drafted completions have the tokens of the plain ones.
    fn equal(&self) -> Option<bool> {
        self.has_drafts().then(|| self.entries.iter().all(|entry| entry.equal == Some(true)))
    }

    /// Completions of one way to run, with their kind of text.
    fn of<'a>(&'a self, mode: impl Fn(&'a Entry) -> Option<&'a Mode>) -> Vec<(&'a str, &'a Mode)> {
        let pair = |entry: &'a Entry| Some((entry.class.as_str(), mode(entry)?));
        self.entries.iter().filter_map(pair).collect()
    }
}

/// What each number is; a number with another meaning would need another name.
fn definitions() -> Value {
    json!({
        "decode": "tokens a second from the first token of a completion to its last: tokens - 1 intervals",
        "first_100": "the same from the first token to the hundredth, 99 intervals; completions of fewer tokens are left out",
        "full": "tokens of a completion over the time from its submission to its end, the prompt included",
        "prefill": "tokens of the prompt over the time from the first step to the first token",
        "mean": "arithmetic mean over the prompts",
        "p10": "a tenth of the prompts lie below; between two, in proportion",
        "lower_95": "bootstrap: the 5 % quantile of means of as many prompts drawn with replacement, 10,000 drawings",
        "accepted_drafts_per_verify": "drafts kept over verifies that carried drafts",
        "warm_up": "one completion of 8 tokens in each mode before the first prompt, not counted",
    })
}

impl Mode {
    fn json(&self) -> Value {
        json!({
            "tokens": self.tokens,
            "ended": match self.end {
                EndReason::MaxTokens => "length",
                EndReason::Stop => "stop",
                EndReason::Context => "context",
            },
            "decode": self.decode,
            "first_100": self.first_100,
            "full": self.full,
            "prefill": self.prefill,
            "accepted_drafts_per_verify": accepted([self]),
        })
    }
}

/// Draft tokens kept a verify; none where nothing was guessed.
fn accepted<'a>(modes: impl IntoIterator<Item = &'a Mode>) -> Option<f64> {
    let kept: Vec<u32> = modes.into_iter().flat_map(|mode| mode.accepted.iter().copied()).collect();
    (!kept.is_empty()).then(|| f64::from(kept.iter().sum::<u32>()) / kept.len() as f64)
}

/// Rates over all prompts and over each kind of text.
fn summary(runs: &[(&str, &Mode)]) -> Value {
    let modes = || runs.iter().map(|(_, mode)| *mode);
    let mut classes: Vec<&str> = runs.iter().map(|(class, _)| *class).collect();
    classes.dedup();
    let class = |class: &&str| {
        let modes = || runs.iter().filter(|(of, _)| of == class).map(|(_, mode)| *mode);
        let rates = json!({
            "decode": mean(&Samples(modes().filter_map(|mode| mode.decode).collect())),
            "accepted_drafts_per_verify": accepted(modes()),
        });
        ((*class).to_owned(), rates)
    };
    json!({
        "decode": spread(&Samples(modes().filter_map(|mode| mode.decode).collect())),
        "first_100": spread(&Samples(modes().filter_map(|mode| mode.first_100).collect())),
        "full": spread(&Samples(modes().map(|mode| mode.full).collect())),
        "tokens": modes().map(|mode| mode.tokens).sum::<usize>(),
        "stopped_early": modes().filter(|mode| mode.end != EndReason::MaxTokens).count(),
        "accepted_drafts_per_verify": accepted(modes()),
        "classes": classes.iter().map(class).collect::<serde_json::Map<_, _>>(),
    })
}

/// How many completions have fewer tokens than were asked for, and why.
fn early_ends(runs: &[(&str, &Mode)]) -> String {
    let count = |end| runs.iter().filter(|(_, mode)| mode.end == end).count();
    let (stopped, cut) = (count(EndReason::Stop), count(EndReason::Context));
    let mut text =
        format!("{} of {} completions ended before {TOKENS} tokens", stopped + cut, runs.len());
    let reasons = [
        (stopped, "by a stop token of the model"),
        (cut, "because --context was used up: give a larger one"),
    ];
    let reasons = reasons.iter().filter(|(count, _)| *count > 0);
    let reasons: Vec<String> = reasons.map(|(count, why)| format!("{count} {why}")).collect();
    if !reasons.is_empty() {
        text += &format!(": {}", reasons.join(", "));
    }
    text
}

fn spread(rates: &Samples) -> Value {
    if rates.0.is_empty() {
        return Value::Null;
    }
    json!({
        "prompts": rates.0.len(),
        "mean": mean(rates),
        "p10": rates.quantile(0.1),
        "min": rates.min(),
        "lower_95": lower_bound(rates),
    })
}

fn mean(rates: &Samples) -> Option<f64> {
    (!rates.0.is_empty()).then(|| rates.0.iter().sum::<f64>() / rates.0.len() as f64)
}

/// The mean lies above this with a confidence of 95 %, by resampling the prompts.
fn lower_bound(rates: &Samples) -> f64 {
    let count = rates.0.len() as u64;
    let drawn = |drawing: u64| {
        let pick = |i: u64| rates.0[(hash64(SEED, drawing * count + i) % count) as usize];
        (0..count).map(pick).sum::<f64>() / count as f64
    };
    Samples((0..DRAWINGS).map(drawn).collect()).quantile(0.05)
}

impl fmt::Display for SuiteRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {}, {} threads", self.card.name, self.card.backend, self.threads)?;
        let modes = [
            ("plain", self.of(|entry| Some(&entry.plain))),
            ("drafted", self.of(|entry| entry.drafted.as_ref())),
        ];
        for (name, runs) in modes.iter().filter(|(_, runs)| !runs.is_empty()) {
            let summary = summary(runs);
            writeln!(
                f,
                "\n{name}, tokens/s {:>17} {:>9} {:>9} {:>9}",
                "mean", "95 % over", "p10", "min"
            )?;
            for rate in ["decode", "first_100", "full"] {
                let value = |key: &str| summary[rate][key].as_f64();
                write!(f, "  {rate:<22}")?;
                for key in ["mean", "lower_95", "p10", "min"] {
                    match value(key) {
                        Some(value) => write!(f, " {value:>9.2}")?,
                        None => write!(f, " {:>9}", "-")?,
                    }
                }
                writeln!(f)?;
            }
            let classes = summary["classes"].as_object().into_iter().flatten();
            for (class, rates) in classes {
                let rate = rates["decode"].as_f64().unwrap_or(0.0);
                write!(f, "  decode, {class:<14} {rate:>9.2}")?;
                match rates["accepted_drafts_per_verify"].as_f64() {
                    Some(kept) => writeln!(f, "  {kept:.2} drafts kept a verify")?,
                    None => writeln!(f)?,
                }
            }
            writeln!(f, "  {}", early_ends(runs))?;
        }
        match self.equal() {
            Some(true) => writeln!(f, "\nDrafted completions equal the plain ones."),
            Some(false) => writeln!(f, "\nDrafted completions DIFFER from the plain ones."),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(tokens: usize, decode: f64, accepted: &[u32]) -> Mode {
        Mode {
            tokens,
            end: if tokens < 256 { EndReason::Stop } else { EndReason::MaxTokens },
            decode: Some(decode),
            first_100: (tokens >= 100).then_some(2.0 * decode),
            full: decode / 2.0,
            prefill: 1.0,
            accepted: accepted.to_vec(),
        }
    }

    #[test]
    fn a_summary_counts_what_there_is() {
        let runs = [mode(256, 10.0, &[3, 5]), mode(40, 20.0, &[1]), mode(256, 60.0, &[])];
        let classes = ["code", "code", "json"];
        let summary_json = summary(&classes.into_iter().zip(&runs).collect::<Vec<_>>());
        assert_eq!(summary_json["decode"]["mean"], 30.0);
        assert_eq!(summary_json["decode"]["min"], 10.0);
        assert_eq!(
            (&summary_json["first_100"]["prompts"], &summary_json["first_100"]["mean"]),
            (&json!(2), &json!(70.0))
        );
        assert_eq!(
            (&summary_json["tokens"], &summary_json["stopped_early"]),
            (&json!(552), &json!(1))
        );
        assert_eq!(summary_json["accepted_drafts_per_verify"], 3.0);
        assert_eq!(summary_json["classes"]["code"]["decode"], 15.0);
        assert_eq!(summary_json["classes"]["json"]["accepted_drafts_per_verify"], Value::Null);
    }

    #[test]
    fn early_ends_have_reasons() {
        let (whole, stopped) = (mode(256, 10.0, &[]), mode(40, 20.0, &[]));
        let cut = Mode { end: EndReason::Context, ..mode(100, 20.0, &[]) };
        let text = |modes: &[&Mode]| {
            early_ends(&modes.iter().map(|mode| ("code", *mode)).collect::<Vec<_>>())
        };
        assert_eq!(text(&[&whole]), "0 of 1 completions ended before 256 tokens");
        let both = text(&[&whole, &stopped, &cut, &stopped]);
        assert!(both.starts_with("3 of 4 completions"), "{both}");
        assert!(
            both.contains("2 by a stop token") && both.contains("1 because --context"),
            "{both}"
        );
    }

    /// For normal data the bound is near the mean less 1.645 standard errors.
    #[test]
    fn the_bound_is_that_of_the_mean() {
        let rates = Samples((0..100).map(f64::from).collect());
        let error = (rates.0.iter().map(|x| (x - 49.5).powi(2)).sum::<f64>() / 100.0).sqrt() / 10.0;
        let bound = lower_bound(&rates);
        assert!((bound - (49.5 - 1.645 * error)).abs() < 0.1 * error, "{bound}");
        assert_eq!(lower_bound(&Samples(vec![7.0; 5])), 7.0);
    }
}
