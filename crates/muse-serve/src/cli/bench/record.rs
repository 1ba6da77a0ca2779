//! What was measured, as a table and as one JSON object.

use std::fmt;
use std::time::Duration;

use muse_core::contract::LogitsRequest;
use muse_core::model::BfpPolicy;
use muse_serve::ModelCard;
use muse_serve::runtime::{MemoryPlan, PassWork, Roofline};
use serde_json::{Value, json};

use super::measure::min_time;
use super::{machine, samples::Samples};

/// One way to run the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// A prompt in an empty cache, its last row scored.
    Prompt { rows: usize },
    /// A pass of few rows in an empty cache, as a verify has them; the last one is scored or all.
    Rows { rows: usize, all: bool },
    /// Tokens one after the other, greedily, behind `depth` rows, through the engine.
    Decode { depth: u32, tokens: usize, drafted: bool },
}

impl Measure {
    /// Rows of the pass, or tokens decoded.
    pub(super) fn rows(&self) -> usize {
        match *self {
            Self::Prompt { rows } | Self::Rows { rows, .. } => rows,
            Self::Decode { tokens, .. } => tokens,
        }
    }

    /// Rows of it that are scored.
    pub(super) fn scored(&self) -> usize {
        match *self {
            Self::Prompt { .. } | Self::Rows { all: false, .. } => 1,
            Self::Rows { rows, all: true } => rows,
            Self::Decode { tokens, .. } => tokens,
        }
    }

    pub(super) fn logits(&self) -> LogitsRequest {
        if matches!(self, Self::Rows { all: true, .. }) {
            LogitsRequest::All
        } else {
            LogitsRequest::Last
        }
    }

    /// The name that stands for exactly this.
    fn key(&self) -> String {
        match *self {
            Self::Prompt { rows } => format!("prompt/{rows}"),
            Self::Rows { rows, all: false } => format!("rows/{rows}/head-last"),
            Self::Rows { rows, all: true } => format!("rows/{rows}/head-all"),
            Self::Decode { depth, drafted: false, .. } => format!("decode/{depth}"),
            Self::Decode { depth, .. } => format!("decode-drafted/{depth}"),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Self::Prompt { rows } => format!("prompt of {rows}"),
            Self::Rows { rows: 1, .. } => "1 row".to_owned(),
            Self::Rows { rows, all: false } => format!("{rows} rows, head on the last"),
            Self::Rows { rows, all: true } => format!("{rows} rows, head on all"),
            Self::Decode { depth, tokens, drafted } => {
                let how = if drafted { "drafted decode" } else { "decode" };
                format!("{how} of {tokens} at depth {depth}")
            }
        };
        f.pad(&text)
    }
}

/// A measure with its times.
pub(super) struct Measurement {
    pub(super) measure: Measure,
    pub(super) seconds: Samples,
    /// Draft tokens kept a verify, where some were made.
    pub(super) accepted: Option<f64>,
}

impl Measurement {
    fn rates(&self) -> Samples {
        Samples(self.seconds.0.iter().map(|time| self.measure.rows() as f64 / time).collect())
    }

    /// The least time over the median.
    fn share(&self, record: &Record) -> Option<f64> {
        let min_time = min_time(&self.measure, &record.work, &record.roofline)?;
        Some(min_time.as_secs_f64() / self.seconds.median())
    }
}

/// A run of `muse bench`.
pub(super) struct Record {
    pub(super) card: ModelCard,
    pub(super) threads: usize,
    pub(super) exact: bool,
    /// What matrices were rounded to.
    pub(super) weights: Option<BfpPolicy>,
    pub(super) plan: MemoryPlan,
    pub(super) work: PassWork,
    pub(super) load_time: Duration,
    pub(super) resident: Option<u64>,
    /// Before and after.
    pub(super) load_average: [Option<f64>; 2],
    pub(super) roofline: Roofline,
    /// How often everything was measured.
    pub(super) repeats: u32,
    pub(super) lines: Vec<Measurement>,
}

impl Record {
    /// The record that scripts read.
    pub(super) fn json(&self) -> Value {
        let Self { card, plan, work, roofline, .. } = self;
        let kv = plan.full_kv + plan.window_kv + plan.drafter_kv;
        json!({
            "record": "muse-bench 1",
            "version": env!("CARGO_PKG_VERSION"),
            "model": card.name,
            "formats": card.formats,
            "parameters": card.parameters,
            "backend": card.backend,
            "threads": self.threads,
            "kv": format!("{:?}", plan.kv).to_lowercase(),
            "exact": self.exact,
            "weights": self.weights.map(|mix| format!("{mix:?}").to_lowercase()),
            "draft_width": card.draft_width,
            "machine": machine::describe(),
            "load_average": self.load_average,
            "load": {
                "seconds": self.load_time.as_secs_f64(),
                "resident_bytes": self.resident,
                "weight_bytes": plan.weights,
                "kv_bytes": kv,
            },
            "roofline": {
                "read_bytes_per_second": roofline.read,
                "int8_operations_per_second": roofline.int8,
                "bf16_operations_per_second": roofline.bf16,
                "f32_operations_per_second": roofline.f32,
            },
            "work": {
                "bytes_a_pass": work.layers.bytes + work.lm_head.bytes,
                "operations_a_row": work.layers.operations(),
                "operations_a_scored_row": work.lm_head.operations(),
            },
            "definitions": {
                "prompt/N": "N rows into an empty cache, the last one scored; tokens_per_second is N over the time",
                "rows/N/head-last": "a pass of N rows into an empty cache, the last one scored",
                "rows/N/head-all": "the same, every row scored",
                "decode/D": "greedy tokens through the engine behind D rows (1 at least), one at a time; time from the first token to the last",
                "decode-drafted/D": "the same with the drafter",
                "share_of_ceiling": "the least time over the median: the larger of matrix bytes in the file over read bytes per second and operations over the peak of the products of their type",
            },
            "measures": self.lines.iter().map(|line| self.measure(line)).collect::<Vec<_>>(),
        })
    }

    fn measure(&self, line: &Measurement) -> Value {
        let mut value = json!({
            "measure": line.measure.key(),
            "rows": line.measure.rows(),
            "tokens_per_second": line.rates().json(),
            "share_of_ceiling": line.share(self),
        });
        if let Some(accepted) = line.accepted {
            value["accepted_drafts_per_verify"] = json!(accepted);
        }
        value
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { card, roofline, work, .. } = self;
        let formats: Vec<String> = card
            .formats
            .iter()
            .filter(|(_, share)| *share >= 0.005)
            .map(|(name, share)| format!("{name} {:.0} %", share * 100.0))
            .collect();
        writeln!(
            f,
            "{} ({}), {}, {} threads, loaded in {:.1} s, {} resident",
            card.name,
            formats.join(", "),
            card.backend,
            self.threads,
            self.load_time.as_secs_f64(),
            self.resident.map_or("?".to_owned(), |bytes| format!("{:.2} GB", bytes as f64 / 1e9)),
        )?;
        writeln!(
            f,
            "roofline: {:.1} GB/s read; {:.0} int8, {:.0} bf16, {:.0} f32 Gop/s; a pass reads \
             {:.3} GB",
            roofline.read / 1e9,
            roofline.int8 / 1e9,
            roofline.bf16 / 1e9,
            roofline.f32 / 1e9,
            (work.layers.bytes + work.lm_head.bytes) as f64 / 1e9,
        )?;
        writeln!(
            f,
            "\ntokens/s: the median over --repeats {}, and the range; of ceiling: the least time \
             that the roofline allows, over that of the median",
            self.repeats
        )?;
        writeln!(f, "\n{:<32} {:>10} {:>21}  of ceiling", "", "tokens/s", "min to max")?;
        for line in &self.lines {
            let rates = line.rates();
            let spread = format!("{:.1} to {:.1}", rates.min(), rates.max());
            write!(f, "{:<32} {:>10.1} {spread:>21}", line.measure, rates.median())?;
            match (line.share(self), line.accepted) {
                (Some(share), _) => writeln!(f, "  {:>8.0} %", share * 100.0)?,
                (None, Some(accepted)) => writeln!(f, "  {accepted:.2} drafts kept a verify")?,
                (None, None) => writeln!(f)?,
            }
        }
        Ok(())
    }
}
