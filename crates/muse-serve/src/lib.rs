//! The inference server for Muse-Glimmer: gRPC, HTTP and the `muse` command.
//!
//! The only crate that joins the others, and the only one that speaks a network protocol.
//! [`runtime`] loads a model into an [`App`]; a [`Server`] serves it until its shutdown future is
//! ready:
//!
//! ```no_run
//! # use std::sync::Arc;
//! use muse_serve::runtime::{self, LoadOptions};
//! use muse_serve::{ServeOptions, Server};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let options = LoadOptions::default(); // The embedded muse-nano.
//! let loaded = runtime::load(&options, &mut |_, _, _| {})?;
//! let app = loaded.start(Arc::new(|error| eprintln!("the engine stopped: {error}")))?;
//! let server = Server::bind(Arc::new(app), ServeOptions::default()).await?;
//! println!("gRPC on {}, HTTP on {}", server.grpc_addr(), server.http_addr());
//! let interrupted = async { drop(tokio::signal::ctrl_c().await) };
//! server.run(interrupted).await?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod app;
pub mod grpc;
mod http;
mod kv_disk;
mod loading;
pub mod runtime;
mod server;
pub mod service;
mod status;
mod tracking;

pub use app::{App, ModelCard, ModelNames};
pub use loading::{LoadProgress, LoadingServer};
pub use server::{ServeOptions, Server};
