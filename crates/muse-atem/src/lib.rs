//! Conversation to prompt and token stream to events, in the ATEM protocol.
