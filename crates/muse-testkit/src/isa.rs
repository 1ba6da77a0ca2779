//! Which instruction sets a test run must cover.

use std::io::Write as _;

/// Panics when the environment variable `MUSE_EXPECT_ISA` (names with commas between) lists one
/// that is not in `found`: a variant that was skipped must not look tested.
#[track_caller]
pub fn assert_expected_isa(found: &[&str]) {
    let expected = std::env::var("MUSE_EXPECT_ISA").unwrap_or_default();
    for name in expected.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        assert!(
            found.contains(&name),
            "MUSE_EXPECT_ISA asks for {name}, this machine has only {found:?}: run on another one"
        );
    }
}

/// Prints to standard error that a test did not run on this machine, and what the machine lacks. The
/// line is printed even where the test runner captures the output of passing tests.
///
/// Where the test must run, `MUSE_EXPECT_ISA` makes the run fail; see [`assert_expected_isa`].
pub fn report_skipped(test: &str, missing: &str) {
    let line = format!("SKIPPED {test}: this machine has no {missing}\n");
    // One write, so that lines of other threads do not mix with it. A failed one must not fail the test.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
