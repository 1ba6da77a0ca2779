//! The services over sockets on loopback, with a scripted engine and with the embedded checkpoint.

mod client;
#[cfg(all(feature = "cpu", feature = "nano"))]
mod constraints;
#[cfg(all(feature = "cpu", feature = "nano"))]
mod dialects;
mod drain;
#[cfg(all(feature = "cpu", feature = "nano"))]
mod engine;
mod fake;
mod fields;
#[cfg(all(feature = "cpu", feature = "nano"))]
mod growing;
mod grpc;
mod http;
mod limits;
mod loading;
mod memory;
#[cfg(all(feature = "cpu", feature = "nano"))]
mod nano;
mod refusals;
mod sockets;
#[cfg(all(feature = "cpu", feature = "nano"))]
mod tools;
mod tracking;
