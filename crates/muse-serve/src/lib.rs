//! The inference server for Muse-Glimmer: gRPC, HTTP and the `muse` command.
//!
//! The only crate that joins the others, and the only one that speaks a network protocol. An
//! [`App`] is a loaded model, a [`Server`] answers for it until it is told to stop:
//!
//! ```no_run
//! # use std::sync::Arc;
//! use muse_serve::{App, ServeOptions, Server};
//!
//! # async fn serve(app: App) -> std::io::Result<()> {
//! let server = Server::bind(Arc::new(app), ServeOptions::default()).await?;
//! println!("gRPC on {}, HTTP on {}", server.grpc_addr(), server.http_addr());
//! let interrupted = async { drop(tokio::signal::ctrl_c().await) };
//! server.run(interrupted).await
//! # }
//! ```
#![forbid(unsafe_code)]

mod app;
pub mod grpc;
mod http;
mod server;
pub mod service;
mod status;

pub use app::{App, ModelCard};
pub use server::{ServeOptions, Server};
