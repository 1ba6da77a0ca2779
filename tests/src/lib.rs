//! Shared pieces of the tests that join several crates.
#![forbid(unsafe_code)]

pub mod cases;
pub mod chats;
pub mod checkpoint;
pub mod compare;
pub mod edited;
pub mod faulty;
pub mod haystack;
pub mod replay;
pub mod retype;
pub mod run;
pub mod sim;
pub mod timed;
pub mod vision;
pub mod wide;
