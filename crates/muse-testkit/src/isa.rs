//! Which instruction sets a test run must cover.

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
