//! The engine under 200 seeds, and the faults that the simulation must notice.

use std::panic::catch_unwind;

use muse_tests::sim::{
    PlantedFault, Report, Unfair, choices_share_a_turn, priorities_starve_nobody, run,
};

#[test]
fn two_hundred_seeds_violate_no_invariant() {
    let mut sum = Report::default();
    for seed in 0..200 {
        let report =
            run(seed, PlantedFault::Nothing).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        sum.requests += report.requests;
        sum.complete += report.complete;
        sum.accepted += report.accepted;
        sum.cached += report.cached;
    }
    // The seeds must exercise what they are for.
    assert!(sum.complete * 2 > sum.requests, "most requests complete: {sum:?}");
    assert!(sum.accepted > 1000, "draft tokens are accepted: {sum:?}");
    assert!(sum.cached > 1000, "prefixes are reused: {sum:?}");
}

#[test]
fn a_seed_gives_one_trace() {
    for seed in 0..20 {
        assert_eq!(
            run(seed, PlantedFault::Nothing),
            run(seed, PlantedFault::Nothing),
            "seed {seed}"
        );
    }
}

#[test]
fn planted_faults_are_noticed() {
    for plant in PlantedFault::ALL {
        let noticed =
            (0..100).filter(|&seed| !matches!(catch_unwind(|| run(seed, plant)), Ok(Ok(_))));
        let noticed = noticed.count();
        assert!(noticed >= 3, "{plant:?} was noticed in {noticed} of 100 seeds");
    }
}

#[test]
fn choices_of_one_request_share_its_turn() {
    for seed in 0..200 {
        choices_share_a_turn(seed, Unfair::Nothing).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    let noticed = (0..40).filter(|&seed| choices_share_a_turn(seed, Unfair::NoGroups).is_err());
    assert!(noticed.count() >= 30, "choices without a group hold others up");
}

#[test]
fn no_priority_starves_others() {
    for seed in 0..20 {
        let fair = priorities_starve_nobody(seed, Unfair::Nothing);
        fair.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    let noticed = (0..5).filter(|&seed| priorities_starve_nobody(seed, Unfair::NoAgeing).is_err());
    assert_eq!(noticed.count(), 5, "without ageing the highest priority starves others");
}
