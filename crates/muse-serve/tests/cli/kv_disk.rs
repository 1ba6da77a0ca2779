//! `--kv-disk`: what one run read, the next one need not.

use super::*;

#[test]
fn the_next_run_finds_the_prompt_and_says_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let golden = &chats()["chats"]["multi"];
    let ids = list(&golden["prompt_ids"]);
    let run = |extra: &[&str]| {
        let args = ["generate", "--greedy", "--json", "--ids", &ids];
        let disk = ["--kv-disk", path(folder.path())];
        let done = muse(&[&args[..], &disk, extra].concat()).json();
        assert_eq!(done["ids"], golden["f32"]["ids"], "{extra:?}");
        done["usage"]["cached_tokens"].as_u64().expect("a number")
    };
    let whole = golden["prompt_ids"].as_array().expect("a list").len() as u64 / 64 * 64;
    assert_eq!(run(&["--kv", "f32"]), 0);
    assert_eq!(run(&["--kv", "f32"]), whole);
    // Stored in another way, or with the drafter's KV blocks missing, they are other KV blocks.
    assert_eq!(run(&["--kv", "bf16"]), 0);
    assert_eq!(run(&["--kv", "f32", "--no-draft"]), 0);
    for file in std::fs::read_dir(folder.path()).expect("a folder") {
        let file = file.expect("a file").path();
        if file.extension().is_none() {
            continue;
        }
        let mut bytes = std::fs::read(&file).expect("a file");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&file, bytes).expect("written");
    }
    assert_eq!(run(&["--kv", "f32"]), 0);
}
