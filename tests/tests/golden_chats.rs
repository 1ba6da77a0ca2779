//! The golden chats through model and drafter: every token, every accepted length.

use muse_core::Result;
use muse_core::contract::{KvType, Token};
use muse_core::quant::Format;
use muse_cpu::Cpu;
use muse_tests::chats::{Chat, STOP, chats};
use muse_tests::checkpoint::{Checkpoint, cpu, fast_cpu};
use muse_tests::run::{MAX_ROWS, Pair};

const ROOM: usize = 400;

/// What must be equal beside the tokens.
#[derive(Clone, Copy, PartialEq)]
enum Drafts {
    /// Draft tokens and accepted lengths: the same weights as the reference's.
    Equal,
    /// Nothing: rounded weights draft otherwise.
    Free,
}

/// Prompts in chunks of a size, drafted. What chats have in common runs once, in such chunks.
fn check(
    cpu: Cpu,
    checkpoint: &Checkpoint,
    kv: KvType,
    chunk: usize,
    drafts: Drafts,
    chats: &[Chat],
) -> Result<()> {
    let drafter = Some(&*checkpoint.drafter);
    let mut pair = Pair::new(cpu, &*checkpoint.target, drafter, kv, &[])?;
    for Chat { name, prompt, ids, accepted, first_draft } in chats {
        let run = pair.resume(prompt)?;
        let drafted = pair.complete(run, chunk, 15, &STOP, ROOM)?;
        assert_eq!(&drafted.ids, ids, "{name}, drafted, in chunks of {chunk}");
        if drafts == Drafts::Equal {
            assert_eq!(&drafted.accepted, accepted, "{name}: accepted lengths");
            assert_eq!(&drafted.first_draft, first_draft, "{name}: first block");
        }
    }
    Ok(())
}

#[test]
fn prompts_in_chunks_of_64() -> Result<()> {
    check(cpu(), &Checkpoint::nano()?, KvType::F32, 64, Drafts::Equal, &chats())
}

#[test]
fn prompts_in_chunks_of_7() -> Result<()> {
    check(cpu(), &Checkpoint::nano()?, KvType::F32, 7, Drafts::Equal, &chats())
}

#[test]
fn prompts_in_chunks_of_1() -> Result<()> {
    check(cpu(), &Checkpoint::nano()?, KvType::F32, 1, Drafts::Equal, &chats())
}

#[test]
fn other_cache_formats() -> Result<()> {
    let (nano, chats) = (Checkpoint::nano()?, chats());
    for kv in [KvType::Bf16, KvType::F16, KvType::Q8_0] {
        check(cpu(), &nano, kv, 64, Drafts::Free, &chats[..18])?;
    }
    Ok(())
}

/// Packed weights with the activations they want: BF16, and Q8_0 made from it, in any chunks.
#[test]
fn packed_weights_keep_the_text() -> Result<()> {
    for kind in ["bf16", "q8_0"] {
        let checkpoint = Checkpoint::nano_gguf(kind)?;
        for chunk in [1, 7, 64, MAX_ROWS] {
            check(fast_cpu(), &checkpoint, KvType::Bf16, chunk, Drafts::Free, &chats())?;
        }
    }
    Ok(())
}

/// Prompts whole, plain, then drafted over the rows that the plain run and earlier chats left in the cache.
fn check_file(checkpoint: &Checkpoint, drafts: Drafts) -> Result<()> {
    let drafter = Some(&*checkpoint.drafter);
    let mut pair = Pair::new(cpu(), &*checkpoint.target, drafter, KvType::F32, &[])?;
    for Chat { name, prompt, ids, accepted, first_draft } in chats() {
        let run = pair.resume(&prompt)?;
        let plain = pair.complete(run, MAX_ROWS, 0, &STOP, ROOM)?;
        assert_eq!(plain.ids, ids, "{name}, plain");
        let run = pair.resume(&prompt)?;
        assert!(run.done > 0 || prompt.len() < 64, "{name}: its blocks were just left behind");
        let drafted = pair.complete(run, MAX_ROWS, 15, &STOP, ROOM)?;
        assert_eq!(drafted.ids, ids, "{name}, drafted");
        if drafts == Drafts::Equal {
            assert_eq!(drafted.accepted, accepted, "{name}: accepted lengths");
            assert_eq!(drafted.first_draft, first_draft, "{name}: first block");
        }
    }
    Ok(())
}

#[test]
fn huggingface_bf16() -> Result<()> {
    check_file(&Checkpoint::nano()?, Drafts::Equal)
}

#[test]
fn gguf_bf16() -> Result<()> {
    check_file(&Checkpoint::nano_gguf("bf16")?, Drafts::Equal)
}

#[test]
fn gguf_q8_0() -> Result<()> {
    check_file(&Checkpoint::nano_gguf("q8_0")?, Drafts::Free)
}

#[test]
fn gguf_f32() -> Result<()> {
    check_file(&Checkpoint::nano_retyped(Format::F32)?, Drafts::Equal)
}

#[test]
fn gguf_f16() -> Result<()> {
    check_file(&Checkpoint::nano_retyped(Format::F16)?, Drafts::Free)
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
