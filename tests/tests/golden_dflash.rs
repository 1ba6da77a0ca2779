//! The drafter beside the reference: what goes in, hidden rows, raw logits, drafts and accepted
//! lengths, with F32 K/V.

use muse_core::Result;
use muse_core::contract::KvType;
use muse_testkit::{Golden, golden_dir};
use muse_tests::checkpoint::{Checkpoint, cpu};
use muse_tests::{compare, run::Pair};

/// Raw draft logits reach 120; the reference itself differs by 6e-4 from float64.
const LOGITS: f32 = 2e-3;
/// Values of hidden rows and of captured hidden states reach 20 and more.
const HIDDEN: f32 = 1e-3;

fn check(checkpoint: &Checkpoint, folder: &str) -> Result<()> {
    let golden = Golden::open(&format!("{folder}/dflash_f32.safetensors"));
    let info =
        std::fs::read(golden_dir().join(folder).join("info.json")).expect("part of the tree");
    let info: serde_json::Value = serde_json::from_slice(&info).expect("JSON");
    let drafter = Some(&*checkpoint.drafter);
    let mut pair = Pair::new(cpu(), &*checkpoint.target, drafter, KvType::F32, &[])?;
    for prompt in ["p7", "p33", "p100"] {
        let trace = compare::draft(&mut pair, &golden, prompt, usize::MAX, None)?;
        let worst = trace.difference;
        assert_eq!(worst.drafts, 0, "{prompt}: drafts that differ");
        assert!(worst.logits <= LOGITS, "{prompt}: logits differ by {:e}", worst.logits);
        assert!(worst.hidden <= HIDDEN, "{prompt}: hidden rows differ by {:e}", worst.hidden);
        assert!(worst.context <= HIDDEN, "{prompt}: captured_hidden differ by {:e}", worst.context);
        assert_eq!(worst.noise, 0.0, "{prompt}: embeddings are exact");

        let want = golden.tokens(&format!("{prompt}.assisted"));
        assert_eq!(want, golden.tokens(&format!("{prompt}.greedy")), "{prompt}: the reference");
        assert_eq!(trace.tokens, want, "{prompt}: tokens");
        // The reference notes with each round how many drafts the one before had right.
        let noted = info["info"]["dflash_f32"][format!("{prompt}.accept")].as_array();
        let noted: Vec<usize> = noted
            .expect("accepted lengths")
            .iter()
            .map(|n| n.as_u64().expect("a length") as usize)
            .collect();
        assert_eq!(trace.accepted.len(), noted.len(), "{prompt}: rounds");
        assert_eq!(trace.accepted[..noted.len() - 1], noted[1..], "{prompt}: accepted");
    }
    Ok(())
}

#[test]
fn tiny_drafts() -> Result<()> {
    check(&Checkpoint::tiny()?, "tiny/golden")
}

#[test]
fn nano_drafts() -> Result<()> {
    check(&Checkpoint::nano()?, "nano/raw")
}
