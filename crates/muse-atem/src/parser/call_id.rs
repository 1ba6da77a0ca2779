//! Ids of tool calls.

use std::hash::{BuildHasher, Hasher, RandomState};

const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A new id. Random, because counted ids would repeat in the next answer of a conversation.
pub(super) fn new_call_id() -> String {
    // `RandomState` takes its keys from the system's entropy; the hash of nothing depends on them
    // only.
    let word = || u128::from(RandomState::new().build_hasher().finish());
    let mut noise = word() << 64 | word();
    let mut id = String::from("call_");
    for _ in 0..20 {
        id.push(char::from(LETTERS[(noise % 62) as usize]));
        noise /= 62;
    }
    id
}
