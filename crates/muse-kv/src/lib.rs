//! Which page of the KV cache belongs to whom.
#![forbid(unsafe_code)]
