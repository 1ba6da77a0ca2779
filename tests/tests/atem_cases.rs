//! All protocol cases, as `cargo xtask cases` runs them.

use muse_testkit::golden_dir;
use muse_tests::cases::{self, Outcome};

#[test]
fn all_cases_pass() {
    let tokenizer = cases::nano_tokenizer().unwrap();
    let cases = cases::read(&golden_dir().join("atem/cases.jsonl")).unwrap();
    let mut failed = Vec::new();
    let (mut passed, mut skipped) = (0, 0);
    for case in &cases {
        match cases::run(case, &tokenizer) {
            Outcome::Passed => passed += 1,
            Outcome::Skipped(reason) => {
                println!("skipped {}: {reason}", case.id);
                skipped += 1;
            }
            Outcome::Failed(how) => failed.push(format!("{}: {how}", case.id)),
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
    assert_eq!(passed + skipped, cases.len());
    assert!(passed >= 140, "only {passed} cases ran");
}
