//! The inference server for Muse-Glimmer: gRPC, HTTP and the `muse` command.
//!
//! The only crate that joins the others, and the only one that speaks a network protocol.
#![forbid(unsafe_code)]

mod app;
pub mod grpc;
mod http;
mod server;
pub mod service;
mod status;

pub use app::{App, ModelCard};
pub use server::{ServeOptions, Server};
