//! Deterministic simulation: the engine on fakes under seeded arrivals, cancels, departures,
//! deadlines, exhaustion and device faults, checked against invariants.

mod fairness;
mod generate;
mod plain;
mod plant;
mod run;
mod test_engine;

pub use fairness::{Unfair, choices_share_a_turn, priorities_starve_nobody};
pub use plain::plain;
pub use plant::PlantedFault;
pub use run::{Report, run};
pub use test_engine::{
    Client, Grammar, Parts, Received, Setup, TestEngine, TestRequest, client, ids,
};
