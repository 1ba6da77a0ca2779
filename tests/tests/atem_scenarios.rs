//! Every scenario of the protocol cases is shown by a test named after its id, or listed here with
//! the work that shows it.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use muse_testkit::golden_dir;
use muse_tests::cases;

const GOLDEN: &str = "held by the golden numbers and their mutations, under other names";
const VISION: &str = "comes with the vision tower";
const SERVING: &str = "comes with the serving surface: queues, limits, usage and their answers";
const CACHE: &str = "comes with the prefix cache";
const DRAFTER: &str = "comes with the drafter's governor and its metrics";
const FORMATS: &str = "comes with the quantised formats and how they are checked";

/// Scenarios without a test of their name.
const ELSEWHERE: [(&str, &str); 50] = [
    ("tokenizer_stop-001", SERVING),
    ("tokenizer_stop-002", SERVING),
    ("dflash-002", GOLDEN),
    ("dflash-003", GOLDEN),
    ("dflash-005", GOLDEN),
    ("dflash-006", GOLDEN),
    ("dflash-007", DRAFTER),
    ("dflash-008", GOLDEN),
    ("dflash-009", DRAFTER),
    ("dflash-011", DRAFTER),
    ("dflash-012", DRAFTER),
    ("dflash-016", DRAFTER),
    ("cache-003", CACHE),
    ("cache-004", CACHE),
    ("cache-009", CACHE),
    ("cache-011", CACHE),
    ("cache-012", CACHE),
    ("cache-013", CACHE),
    ("cache-014", CACHE),
    ("cache-015", VISION),
    ("long_context-002", GOLDEN),
    ("long_context-003", GOLDEN),
    ("long_context-005", GOLDEN),
    ("long_context-006", SERVING),
    ("long_context-008", SERVING),
    ("long_context-011", GOLDEN),
    ("vision-002", VISION),
    ("vision-003", VISION),
    ("vision-004", VISION),
    ("vision-005", VISION),
    ("vision-006", VISION),
    ("vision-011", VISION),
    ("vision-015", VISION),
    ("vision-016", VISION),
    ("vision-017", VISION),
    ("vision-018", VISION),
    ("quant_gguf-001", FORMATS),
    ("quant_gguf-002", FORMATS),
    ("quant_gguf-007", FORMATS),
    ("quant_gguf-009", FORMATS),
    ("quant_gguf-010", FORMATS),
    ("quant_gguf-011", FORMATS),
    ("server_dos-007", SERVING),
    ("server_dos-010", SERVING),
    ("server_dos-011", SERVING),
    ("metrics_usage-004", SERVING),
    ("metrics_usage-005", SERVING),
    ("metrics_usage-006", SERVING),
    ("metrics_usage-008", SERVING),
    ("cache-017", CACHE),
];

#[test]
fn every_scenario_is_shown_or_listed() {
    let mut tested = HashSet::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for folder in ["crates", "tests/tests", "tests/src"] {
        collect(&root.join(folder), &mut tested);
    }
    let elsewhere: HashMap<_, _> = ELSEWHERE.into_iter().collect();
    let cases = cases::read(&golden_dir().join("atem/cases.jsonl")).unwrap();
    let scenarios = cases.iter().filter(|case| case.given["type"] == "scenario");
    let mut missing = Vec::new();
    for case in scenarios {
        let name = case.id.replace('-', "_");
        let here = tested.iter().any(|test| test.starts_with(&name));
        match (here, elsewhere.get(case.id.as_str())) {
            (true, _) => {}
            (false, Some(reason)) => println!("{}: {reason}", case.id),
            (false, None) => missing.push(case.id.clone()),
        }
    }
    assert!(missing.is_empty(), "no test and no line for {missing:?}");
}

/// Names of all functions below a folder.
fn collect(folder: &Path, names: &mut HashSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let after = text.split("fn ").skip(1);
            names.extend(after.filter_map(|rest| Some(rest.split_once('(')?.0.to_owned())));
        }
    }
}
