//! The engine under 200 seeds, and the faults that the simulation must notice.

use std::panic::catch_unwind;

use muse_tests::sim::{Plant, Report, run};

#[test]
fn two_hundred_seeds_keep_every_promise() {
    let mut sum = Report::default();
    for seed in 0..200 {
        let report = run(seed, Plant::Nothing).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        sum.requests += report.requests;
        sum.complete += report.complete;
        sum.accepted += report.accepted;
        sum.cached += report.cached;
    }
    // The seeds must exercise what they are for.
    assert!(sum.complete * 2 > sum.requests, "most requests end of themselves: {sum:?}");
    assert!(sum.accepted > 1000, "drafts are kept: {sum:?}");
    assert!(sum.cached > 1000, "prefixes are found again: {sum:?}");
}

#[test]
fn a_seed_gives_one_trace() {
    for seed in 0..20 {
        assert_eq!(run(seed, Plant::Nothing), run(seed, Plant::Nothing), "seed {seed}");
    }
}

#[test]
fn planted_faults_are_noticed() {
    for plant in Plant::ALL {
        let noticed =
            (0..100).filter(|&seed| !matches!(catch_unwind(|| run(seed, plant)), Ok(Ok(_))));
        let noticed = noticed.count();
        assert!(noticed >= 3, "{plant:?} was noticed in {noticed} of 100 seeds");
    }
}
