//! Deterministic simulation: the engine on fakes under seeded arrivals, cancels, departures,
//! deadlines, exhaustion and device faults, held against what must always be true.

mod arrivals;
mod plain;
mod plant;
mod rig;
mod run;

pub use plain::plain;
pub use plant::Plant;
pub use rig::{Ask, Client, Grammar, Heard, Parts, Rig, Setup, client, ids};
pub use run::{Report, run};
