//! The text model beside the reference: logits, hidden states, greedy tokens, with F32 K/V.

use muse_core::Result;
use muse_core::contract::KvType;
use muse_testkit::Golden;
use muse_tests::checkpoint::{Checkpoint, cpu};
use muse_tests::{compare, run::Pair};

/// Logits reach 16; the reference itself differs by 1.5e-4 from float64.
const LOGITS: f32 = 5e-4;
/// Relative to the largest value of a row.
const HIDDEN: f32 = 1e-3;

fn check(checkpoint: &Checkpoint, golden: &str, prompts: &[&str]) -> Result<()> {
    let golden = Golden::open(golden);
    let layers = checkpoint.target.spec().text.as_ref().expect("a text model").layers.len();
    let captured_hidden: Vec<usize> = (0..layers).collect();
    let mut pair = Pair::new(cpu(), &*checkpoint.target, None, KvType::F32, &captured_hidden)?;
    let worst = compare::text(&mut pair, &*checkpoint.target, &golden, prompts)?;
    assert!(worst.logits <= LOGITS, "logits differ by {:e}", worst.logits);
    assert!(worst.hidden <= HIDDEN, "hidden states differ by {:e} of a row", worst.hidden);
    assert_eq!(worst.argmax, 0, "positions whose best token is another");
    Ok(())
}

fn check_greedy(checkpoint: &Checkpoint, golden: &str) -> Result<()> {
    let golden = Golden::open(golden);
    let mut pair = Pair::new(cpu(), &*checkpoint.target, None, KvType::F32, &[])?;
    let (prompt, whole) = (golden.tokens("p33.ids"), golden.tokens("greedy.p33"));
    let run = pair.open(&prompt)?;
    let completion = pair.complete(run, prompt.len(), 0, &[], whole.len() - prompt.len())?;
    assert_eq!(completion.ids, whole[prompt.len()..]);
    Ok(())
}

#[test]
fn tiny_scores_and_hidden_states() -> Result<()> {
    check(&Checkpoint::tiny()?, "tiny/golden/text_f32.safetensors", &["p1", "p7", "p33", "p100"])
}

#[test]
fn tiny_greedy_past_the_window() -> Result<()> {
    check_greedy(&Checkpoint::tiny()?, "tiny/golden/text_f32.safetensors")
}

#[test]
fn nano_scores_and_hidden_states() -> Result<()> {
    let nano = Checkpoint::nano()?;
    check(&nano, "nano/raw/text_f32.safetensors", &["p1", "p7", "p33", "p100"])?;
    check(&nano, "nano/text.safetensors", &["short", "chat", "window", "tools"])
}

#[test]
fn nano_greedy() -> Result<()> {
    let nano = Checkpoint::nano()?;
    check_greedy(&nano, "nano/raw/text_f32.safetensors")?;
    let golden = Golden::open("nano/text.safetensors");
    let mut pair = Pair::new(cpu(), &*nano.target, None, KvType::F32, &[])?;
    for prompt in ["short", "chat", "window", "tools"] {
        let ids = golden.tokens(&format!("{prompt}.ids"));
        let run = pair.open(&ids)?;
        let completion = pair.complete(run, ids.len(), 0, &[], 64)?;
        assert_eq!(completion.ids, golden.tokens(&format!("{prompt}.greedy64")), "{prompt}");
    }
    Ok(())
}
