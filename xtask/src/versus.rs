//! llama-bench and `muse bench` in turn on the same files: how much faster muse is. Only
//! what both measure alike is compared; they run in turn, so that both meet the same other load.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::flags::Versus;
use crate::tools;

/// Tokens a second of each measure, by the name that `muse bench` gives it.
type Rates = BTreeMap<String, f64>;

/// What is measured, as arguments of both programs.
struct Plan {
    bench: PathBuf,
    muse: PathBuf,
    threads: String,
    repeats: String,
    prompt: String,
    tokens: String,
    rows: String,
}

/// Measures files one after the other.
pub(crate) fn run(sh: &Shell, flags: &Versus) -> Result<()> {
    ensure!(
        !flags.model.is_empty(),
        "no file to measure; give --model FILE, more than once if you like"
    );
    let pairs = flags.pairs.unwrap_or(3);
    ensure!(pairs > 0, "--pairs 0 measures nothing; give 1 or more");
    let bench = flags.llama.join("llama-bench");
    ensure!(
        bench.is_file(),
        "{} is no file; --llama names the folder of llama.cpp's programs",
        bench.display()
    );
    cmd!(sh, "cargo build --quiet --release --package muse-serve --bin muse").run()?;
    let cores = || available_parallelism().map_or(1, usize::from);
    let plan = Plan {
        bench: std::path::absolute(bench)?,
        muse: tools::target_directory(sh)?.join("release/muse"),
        threads: flags.threads.unwrap_or_else(cores).to_string(),
        repeats: flags.repeats.unwrap_or(3).to_string(),
        prompt: flags.prompt.unwrap_or(512).to_string(),
        tokens: flags.tokens.unwrap_or(32).to_string(),
        rows: flags.rows.clone().unwrap_or_else(|| "2,4,8,16".to_owned()),
    };
    flags.model.iter().try_for_each(|model| plan.compare(sh, &std::path::absolute(model)?, pairs))
}

impl Plan {
    /// A, B, A, B: both on one file.
    fn compare(&self, sh: &Shell, model: &Path, pairs: usize) -> Result<()> {
        let (mut theirs, mut ours, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        let (before, mut mode) = (load_average(), "");
        for _ in 0..pairs {
            let record = self.muse(sh, model)?;
            mode = repack(&record)?;
            ours.push(muse_rates(&record)?);
            shares.push(muse_shares(&record)?);
            theirs.push(self.llama(sh, model, mode)?);
        }
        println!(
            "\n{}: {} threads, llama-bench --repack {mode}, load average {before} to {}",
            model.display(),
            self.threads,
            load_average()
        );
        println!(
            "{:<20} {:>10} {:>10} {:>7} {:>16} {:>11}",
            "", "llama.cpp", "muse", "ratio", "min to max", "of peak"
        );
        for measure in ours[0].keys() {
            let row = Row::of(measure, &theirs, &ours)?;
            let share = column(&shares, measure)?;
            println!(
                "{measure:<20} {:>10.2} {:>10.2} {:>7.2} {:>16} {:>9.0} %",
                row.theirs,
                row.ours,
                row.ratio,
                format!("{:.2} to {:.2}", row.min, row.max),
                100.0 * median(&share)
            );
        }
        Ok(())
    }

    fn llama(&self, sh: &Shell, model: &Path, repack: &str) -> Result<Rates> {
        let Self { bench, threads, repeats, prompt, tokens, rows, .. } = self;
        let prompts = format!("{prompt},{rows}");
        let lines = cmd!(
            sh,
            "{bench} -m {model} -t {threads} -r {repeats} -p {prompts} -n {tokens} --repack {repack} -o jsonl"
        );
        let lines = lines.quiet().ignore_stderr().read()?;
        llama_rates(&lines, prompt)
    }

    fn muse(&self, sh: &Shell, model: &Path) -> Result<Value> {
        let Self { muse, threads, repeats, prompt, tokens, rows, .. } = self;
        let record = cmd!(
            sh,
            "{muse} bench --model {model} --kv f16 --threads {threads} --repeats {repeats} -p {prompt} -n {tokens} -d 0 --rows {rows} --json"
        );
        Ok(serde_json::from_str(&record.quiet().read()?)?)
    }
}

/// The faster mode of llama-bench for the type of most of a file's weights.
fn repack(record: &Value) -> Result<&'static str> {
    let main = record["formats"][0][0].as_str().context("muse bench names no formats")?;
    Ok(if main.to_uppercase().ends_with("_K") { "0" } else { "1" })
}

/// A measure over all pairs.
#[derive(Debug, PartialEq)]
struct Row {
    theirs: f64,
    ours: f64,
    /// Medians, and the bounds, of the ratios of neighbours.
    ratio: f64,
    min: f64,
    max: f64,
}

impl Row {
    fn of(measure: &str, theirs: &[Rates], ours: &[Rates]) -> Result<Self> {
        let (theirs, ours) = (column(theirs, measure)?, column(ours, measure)?);
        let ratios: Vec<f64> =
            ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
        Ok(Self {
            theirs: median(&theirs),
            ours: median(&ours),
            ratio: median(&ratios),
            min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            max: ratios.iter().copied().fold(0.0, f64::max),
        })
    }
}

fn column(runs: &[Rates], measure: &str) -> Result<Vec<f64>> {
    let value = |run: &Rates| run.get(measure).copied();
    let values: Option<Vec<f64>> = runs.iter().map(value).collect();
    values.with_context(|| format!("{measure} was not measured by both"))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = ((sorted.len() - 1) / 2, sorted.len() / 2);
    (sorted[low] + sorted[high]) / 2.0
}

/// Medians of what llama-bench printed; its prompts of few rows score the last one.
fn llama_rates(lines: &str, prompt: &str) -> Result<Rates> {
    let mut rates = Rates::new();
    for line in lines.lines().filter(|line| line.starts_with('{')) {
        let test: Value = serde_json::from_str(line)?;
        let number = |name: &str| test[name].as_u64().with_context(|| format!("no {name}: {line}"));
        let (rows, generated) = (number("n_prompt")?, number("n_gen")?);
        let measure = match (rows, generated) {
            (0, _) => "decode/0".to_owned(),
            (rows, 0) if rows.to_string() == prompt => format!("prompt/{rows}"),
            (rows, 0) => format!("rows/{rows}/head-last"),
            _ => bail!("a test of llama-bench that was not asked for: {line}"),
        };
        let samples = test["samples_ts"].as_array().context("no samples_ts")?;
        let samples: Vec<f64> = samples.iter().filter_map(Value::as_f64).collect();
        ensure!(!samples.is_empty(), "no samples: {line}");
        rates.insert(measure, median(&samples));
    }
    ensure!(!rates.is_empty(), "llama-bench measured nothing; run it by hand to see why");
    Ok(rates)
}

fn muse_rates(record: &Value) -> Result<Rates> {
    measures(record, &|measure| measure["tokens_per_second"]["median"].as_f64())
}

fn muse_shares(record: &Value) -> Result<Rates> {
    measures(record, &|measure| measure["share_of_ceiling"].as_f64())
}

/// A number of each measure that llama-bench has too.
fn measures(record: &Value, number: &dyn Fn(&Value) -> Option<f64>) -> Result<Rates> {
    let measures = record["measures"].as_array().context("a record without measures")?;
    let named = measures.iter().map(|measure| Some((measure["measure"].as_str()?, measure)));
    let shared = named.flatten().filter(|(name, _)| !name.ends_with("head-all"));
    let value = |(name, measure): (&str, &Value)| Some((name.to_owned(), number(measure)?));
    Ok(shared.filter_map(value).collect())
}

fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEIRS: &str = r#"{"n_prompt": 512, "n_gen": 0, "samples_ts": [100.0, 104.0, 90.0]}
{"n_prompt": 16, "n_gen": 0, "samples_ts": [40.0]}
{"n_prompt": 0, "n_gen": 32, "samples_ts": [10.0, 12.0]}"#;
    const OURS: &str = r#"{"measures": [
        {"measure": "prompt/512", "tokens_per_second": {"median": 150.0}, "share_of_ceiling": 0.5},
        {"measure": "rows/16/head-last", "tokens_per_second": {"median": 80.0}, "share_of_ceiling": 0.4},
        {"measure": "rows/16/head-all", "tokens_per_second": {"median": 1.0}, "share_of_ceiling": 0.3},
        {"measure": "decode/0", "tokens_per_second": {"median": 11.0}, "share_of_ceiling": 0.9}]}"#;

    #[test]
    fn both_are_read_by_the_same_names() {
        let theirs = llama_rates(THEIRS, "512").unwrap();
        let ours = muse_rates(&serde_json::from_str(OURS).unwrap()).unwrap();
        assert!(theirs.keys().eq(ours.keys()), "{theirs:?} {ours:?}");
        assert_eq!(theirs["prompt/512"], 100.0);
        let row = Row::of("decode/0", &[theirs], &[ours]).unwrap();
        assert_eq!((row.theirs, row.ours, row.ratio), (11.0, 11.0, 1.0));
        assert!(llama_rates("no tests", "512").is_err());
    }

    #[test]
    fn ratios_are_those_of_neighbours() {
        let run = |rate: f64| Rates::from([("x".to_owned(), rate)]);
        let (theirs, ours) = ([run(10.0), run(20.0), run(5.0)], [run(20.0), run(20.0), run(8.0)]);
        let row = Row::of("x", &theirs, &ours).unwrap();
        let expect = Row { theirs: 10.0, ours: 20.0, ratio: 1.6, min: 1.0, max: 2.0 };
        assert_eq!(row, expect);
        assert!(Row::of("y", &theirs, &ours).is_err());
    }

    #[test]
    fn the_faster_mode_of_k_quants_does_not_repack() {
        let mode = |name: &str| {
            let formats = serde_json::json!([[name, 0.7], ["Q6_K", 0.3]]);
            repack(&serde_json::json!({ "formats": formats })).unwrap()
        };
        assert_eq!([mode("q4_k"), mode("Q6_K"), mode("Q4_0"), mode("BF16")], ["0", "0", "1", "1"]);
    }
}
