//! Generated messages and stubs of `muse.v1`: all that a Rust client needs.
//!
//! The source is `proto/muse/v1`, the project's stable interface; `cargo xtask codegen` writes the
//! folder `generated`. Fields are only ever added.
//!
//! ```no_run
//! use muse_proto::v1::{ChatRequest, Conversation, Message, Part, Role, chat_response::Event, part};
//! use muse_proto::v1::chat_service_client::ChatServiceClient;
//!
//! # async fn chat() -> Result<(), Box<dyn std::error::Error>> {
//! let mut client = ChatServiceClient::connect("http://localhost:50051").await?;
//! let question = part::Part::Text("What is 4 + 5?".into());
//! let content = vec![Part { part: Some(question) }];
//! let message = Message { role: Role::User.into(), content, ..Default::default() };
//! let conversation = Conversation { messages: vec![message], ..Default::default() };
//! let request = ChatRequest { conversation: Some(conversation), ..Default::default() };
//! let mut events = client.chat(request).await?.into_inner();
//! while let Some(response) = events.message().await? {
//!     if let Some(Event::Text(delta)) = response.event {
//!         print!("{}", delta.text);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod codec;

pub use codec::{Codec, MessageDecoder};

/// Messages, clients and servers of version 1.
#[rustfmt::skip]
#[path = "generated/muse.v1.rs"]
pub mod v1;

/// The compiled `.proto` files, as reflection serves them.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/muse.v1.binpb");
