//! Limits on grammars that more than one stage checks.

/// The largest grammar, in bytes: compiling takes time and memory.
pub(super) const MAX_GRAMMAR_BYTES: usize = 512 * 1024;

/// The longest single text that an answer or value can be, in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 8 * 1024;
