//! Reads a chat completion request: the conversation by the template's rules, the rest by ours.

use super::error::ApiError;
use crate::service::Ask;

/// What a body asks for.
pub(super) struct Wanted {
    pub(super) ask: Ask,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
}

pub(super) fn read(_body: &[u8]) -> Result<Wanted, ApiError> {
    Err(ApiError::wrong("x", "y".into()))
}
