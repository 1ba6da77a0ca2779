//! Conversation to prompt and token stream to events, in the ATEM protocol.
#![forbid(unsafe_code)]
