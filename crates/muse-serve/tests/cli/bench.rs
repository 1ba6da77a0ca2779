//! `muse bench`: what its records hold, and what it refuses.

use super::*;

fn keys(record: &Value) -> Vec<&str> {
    let measures = record["measures"].as_array().expect("measures").iter();
    measures.map(|measure| measure["measure"].as_str().expect("a name")).collect()
}

#[test]
fn a_record_has_every_measure_with_its_samples() {
    let args = "bench -p 8,33 -n 4 -d 0,40 --rows 1,3 --repeats 2 --threads 1 --json";
    let record = muse(&args.split(' ').collect::<Vec<_>>()).json();
    let expect = [
        "prompt/8",
        "prompt/33",
        "rows/1/head-last",
        "rows/3/head-last",
        "rows/3/head-all",
        "decode/0",
        "decode-drafted/0",
        "decode/40",
        "decode-drafted/40",
    ];
    assert_eq!(keys(&record), expect);
    for measure in record["measures"].as_array().expect("measures") {
        let name = measure["measure"].as_str().expect("a name");
        let rates = &measure["tokens_per_second"];
        let rate = |key: &str| rates[key].as_f64().expect("a rate");
        assert_eq!(rates["samples"].as_array().map(Vec::len), Some(2), "{name}");
        assert!(0.0 < rate("min") && rate("min") <= rate("median"), "{measure}");
        assert!(rate("median") <= rate("max"), "{measure}");
        let drafted = name.starts_with("decode-drafted");
        assert_eq!(measure["share_of_ceiling"].is_null(), drafted, "{measure}");
        assert_eq!(measure["accepted_drafts_per_verify"].is_number(), drafted, "{measure}");
    }
    assert_eq!((&record["threads"], &record["formats"][0][0]), (&json!(1), &json!("BF16")));
    for limit in ["read_bytes", "int8_operations", "bf16_operations", "f32_operations"] {
        let found = record["roofline"][format!("{limit}_per_second")].as_f64();
        assert!(found > Some(1e8), "{limit}: {found:?}");
    }
    assert_eq!((&record["exact"], &record["weights"]), (&json!(false), &Value::Null));
    // Matrices of bf16: two bytes read and two operations a weight.
    let work = &record["work"];
    assert_eq!(
        work["bytes_a_pass"].as_f64().expect("bytes"),
        work["operations_a_row"].as_f64().expect("operations")
            + work["operations_a_scored_row"].as_f64().expect("operations")
    );
}

/// A prompt of more rows than a pass takes goes in chunks, each time from the beginning: it needs no
/// more room than it has rows.
#[test]
fn a_long_prompt_begins_anew_each_time() {
    let args = "bench -p 2049 -n 0 --rows 1 --repeats 3 --threads 2 --json";
    let record = muse(&args.split(' ').collect::<Vec<_>>()).json();
    assert_eq!(keys(&record), ["prompt/2049", "rows/1/head-last"]);
}

#[test]
fn a_record_says_what_matrices_were_rounded_to() {
    let args = "bench -p 8 -n 0 --rows 1 --repeats 1 --weights bfp4 --exact --json";
    let record = muse(&args.split(' ').collect::<Vec<_>>()).json();
    assert_eq!((&record["exact"], &record["weights"]), (&json!(true), &json!("bfp4")));
}

#[test]
fn the_table_says_the_same() {
    let table = muse(&["bench", "-p", "8", "-n", "0", "--rows", "2", "--repeats", "1"]).ok();
    for line in [
        "muse-nano (BF16 100 %)",
        "prompt of 8",
        "2 rows, head on the last",
        "GB/s read",
        "\ntokens/s: the median over --repeats 1, and the range; of ceiling: the least time",
    ] {
        assert!(table.contains(line), "no {line:?} in: {table}");
    }
}

#[test]
fn the_suite_is_plain_and_drafted_and_says_who_stopped() {
    let record = muse(&["bench", "--suite", "canonical", "--json"]).json();
    assert_eq!(record["drafted_equals_plain"], true);
    let prompts = record["prompts"].as_array().expect("prompts");
    assert_eq!(prompts.len(), 12);
    let mut stopped = 0;
    for prompt in prompts {
        let plain = &prompt["plain"];
        let tokens = plain["tokens"].as_u64().expect("tokens");
        assert_eq!(plain["ended"] == "length", tokens == 256, "{prompt}");
        stopped += u64::from(plain["ended"] == "stop");
        assert_eq!(plain["first_100"].is_null(), tokens < 100, "{prompt}");
        assert_eq!(plain["tokens"], prompt["drafted"]["tokens"], "{prompt}");
        assert!(plain["accepted_drafts_per_verify"].is_null(), "{prompt}");
    }
    assert_eq!(record["plain"]["stopped_early"], stopped);
    for mode in ["plain", "drafted"] {
        let decode = &record[mode]["decode"];
        let value = |key: &str| decode[key].as_f64().expect("a rate");
        assert!(value("min") <= value("p10") && value("lower_95") <= value("mean"), "{decode}");
        for class in ["prose", "code", "json"] {
            assert!(record[mode]["classes"][class]["decode"].as_f64() > Some(0.0), "{class}");
        }
    }
    assert_eq!(record["model"]["content_sha256"].as_str().map(str::len), Some(64));
    assert_eq!(record["drafter"]["length"], "adaptive");
    assert_eq!((&record["exact"], &record["weights"]), (&json!(false), &Value::Null));
}

#[test]
fn a_completion_that_a_short_context_cuts_is_not_one_that_the_model_ended() {
    let suite = ["bench", "--suite", "canonical", "--no-draft", "--context", "192"];
    let record = muse(&[&suite[..], &["--json"]].concat()).json();
    let prompts = record["prompts"].as_array().expect("prompts");
    let ended = |how: &str| prompts.iter().filter(|one| one["plain"]["ended"] == how).count();
    assert_eq!(record["plain"]["stopped_early"], ended("context") + ended("stop"));
    assert!(ended("context") > 0, "{record}");
    for prompt in prompts.iter().filter(|one| one["plain"]["ended"] == "context") {
        let tokens = |part: &Value| part.as_u64().expect("a count");
        let all = tokens(&prompt["prompt_tokens"]) + tokens(&prompt["plain"]["tokens"]);
        // The last token is never run.
        assert!((192..=193).contains(&all), "{prompt}");
    }
    let table = muse(&suite).ok();
    assert!(table.contains("because --context was used up"), "{table}");
}

/// Measuring so many threads would need 400 GB of memory: the file is looked for before.
#[test]
fn a_missing_file_is_named_before_the_machine_is_measured() {
    for more in [&[][..], &["--suite", "canonical"]] {
        let args = ["bench", "/nowhere/model.gguf", "--threads", "4096"];
        muse(&[&args[..], more].concat()).refused(&["/nowhere/model.gguf"]);
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    muse(&["bench", "-p", "0"]).refused(&["-p and --rows", "from 1"]);
    muse(&["bench", "-p", "99999"]).refused(&["--context", "4096"]);
    for flag in ["-p", "-n", "-d", "--rows"] {
        muse(&["bench", flag, "4294967295"]).refused(&["--context is 4294967295", "4096"]);
    }
    for threads in ["0", "100000"] {
        muse(&["bench", "-p", "8", "--threads", threads]).refused(&[threads, "ask for 1 to 4096"]);
    }
    for rows in ["100", "512"] {
        let words = [&format!("--rows {rows}"), "at most 64"];
        muse(&["bench", "-p", "8", "--rows", rows]).refused(&words);
    }
    let said = muse(&["bench", "--suite", "canonical", "-p", "8"]);
    assert_eq!(said.code, Some(2), "{}", said.err);
}
