//! The golden chats through model and drafter: every token, every accepted length.

use muse_core::Result;
use muse_core::contract::{KvType, Token};
use muse_tests::chats::{Chat, STOP, chats};
use muse_tests::checkpoint::{Checkpoint, cpu};
use muse_tests::run::{MAX_ROWS, Pair};

const ROOM: usize = 400;

/// What must be equal beside the tokens.
#[derive(Clone, Copy, PartialEq)]
enum Drafts {
    /// Guesses and accepted lengths: the same weights as the reference's.
    Equal,
    /// Nothing: rounded weights guess otherwise.
    Free,
}

fn check(
    checkpoint: &Checkpoint,
    kv: KvType,
    chunk: usize,
    drafts: Drafts,
    chats: &[Chat],
) -> Result<()> {
    let drafter = Some(&*checkpoint.drafter);
    let mut pair = Pair::new(cpu(), &*checkpoint.target, drafter, kv, &[])?;
    for Chat { name, prompt, ids, accepted, first_draft } in chats {
        let drafted = pair.complete(prompt, chunk, 15, &STOP, ROOM)?;
        assert_eq!(&drafted.ids, ids, "{name}, drafted, in chunks of {chunk}");
        if drafts == Drafts::Equal {
            assert_eq!(&drafted.accepted, accepted, "{name}: accepted lengths");
            assert_eq!(&drafted.first_draft, first_draft, "{name}: first block");
        }
    }
    Ok(())
}

fn check_plain(checkpoint: &Checkpoint, chats: &[Chat]) -> Result<()> {
    let mut pair = Pair::new(cpu(), &*checkpoint.target, None, KvType::F32, &[])?;
    for Chat { name, prompt, ids, .. } in chats {
        let plain = pair.complete(prompt, MAX_ROWS, 0, &STOP, ROOM)?;
        assert_eq!(&plain.ids, ids, "{name}, plain");
    }
    Ok(())
}

#[test]
fn plain() -> Result<()> {
    check_plain(&Checkpoint::nano()?, &chats())
}

#[test]
fn drafted_prompt_whole() -> Result<()> {
    check(&Checkpoint::nano()?, KvType::F32, MAX_ROWS, Drafts::Equal, &chats())
}

#[test]
fn drafted_prompt_by_64() -> Result<()> {
    check(&Checkpoint::nano()?, KvType::F32, 64, Drafts::Equal, &chats())
}

#[test]
fn drafted_prompt_by_7() -> Result<()> {
    check(&Checkpoint::nano()?, KvType::F32, 7, Drafts::Equal, &chats())
}

#[test]
fn drafted_prompt_by_1() -> Result<()> {
    check(&Checkpoint::nano()?, KvType::F32, 1, Drafts::Equal, &chats())
}

#[test]
fn other_cache_formats() -> Result<()> {
    let (nano, chats) = (Checkpoint::nano()?, chats());
    for kv in [KvType::Bf16, KvType::F16, KvType::Q8_0] {
        check(&nano, kv, 64, Drafts::Free, &chats[..18])?;
    }
    Ok(())
}

/// The fixtures hold what the other tests rely on.
#[test]
fn chats_stop_at_the_end_of_the_turn_and_not_of_a_message() {
    let chats = chats();
    assert_eq!(chats.len(), 18 + 2 * 6);
    let stops = |chat: &Chat| chat.ids.iter().filter(|id| STOP.contains(id)).count();
    assert!(chats.iter().all(|chat| chat.ids.len() < ROOM && stops(chat) == 1));
    assert!(chats.iter().any(|chat| chat.ids.contains(&Token(903))));
}
