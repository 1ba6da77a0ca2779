//! Deterministic simulation: the engine on fakes under seeded arrivals, cancels, departures,
//! deadlines, exhaustion and device faults, checked against invariants.

mod arrivals;
mod fairness;
mod plain;
mod plant;
mod rig;
mod run;

pub use fairness::{Unfair, choices_share_a_turn, priorities_starve_nobody};
pub use plain::plain;
pub use plant::PlantedFault;
pub use rig::{Client, Grammar, Parts, Received, Rig, Setup, TestRequest, client, ids};
pub use run::{Report, run};
