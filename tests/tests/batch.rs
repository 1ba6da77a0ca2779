//! A sequence's numbers are the same bits alone and beside others, whole and in chunks.

use muse_core::Result;
use muse_core::contract::{
    Anchor, DraftToken, Drafter, KvPool, KvType, LogitsRequest, SeqSlice, TargetModel, Token,
};
use muse_cpu::Cpu;
use muse_testkit::Golden;
use muse_tests::checkpoint::{Checkpoint, cpu};
use muse_tests::run::{Pair, Run};

/// Logits of every position of a prompt that runs alone in one pass.
fn alone(pair: &mut Pair<Cpu>, ids: &[Token]) -> Result<Vec<f32>> {
    let run = pair.open(ids)?;
    pair.pass(&[(&run, ids, LogitsRequest::All)])?;
    let logits = pair.read_logits(ids.len())?;
    pair.pool.close(run.seq);
    Ok(logits)
}

/// Logits of every position of several prompts that share passes, each in chunks of its own.
/// The sequences stay open.
fn beside(
    pair: &mut Pair<Cpu>,
    prompts: &[(&[Token], usize)],
) -> Result<(Vec<Run>, Vec<Vec<f32>>)> {
    let vocab = pair.target.spec().vocab;
    let mut runs = Vec::new();
    for (ids, _) in prompts {
        runs.push(pair.open(ids)?);
    }
    let mut logits = vec![Vec::new(); prompts.len()];
    loop {
        let rest = |run: &Run, chunk: usize| chunk.min(run.tokens.len() - run.done);
        let batch: Vec<(usize, Vec<Token>)> = (0..runs.len())
            .map(|i| (i, rest(&runs[i], prompts[i].1)))
            .filter(|&(_, rows)| rows > 0)
            .map(|(i, rows)| (i, runs[i].tokens[runs[i].done..][..rows].to_vec()))
            .collect();
        if batch.is_empty() {
            return Ok((runs, logits));
        }
        let entries: Vec<_> =
            batch.iter().map(|(i, ids)| (&runs[*i], ids.as_slice(), LogitsRequest::All)).collect();
        pair.pass(&entries)?;
        let all = pair.read_logits(batch.iter().map(|(_, ids)| ids.len()).sum())?;
        let mut first = 0;
        for (i, ids) in &batch {
            logits[*i].extend_from_slice(&all[first * vocab..][..ids.len() * vocab]);
            pair.keep(&mut runs[*i], ids, first)?;
            first += ids.len();
        }
    }
}

fn drafts(pair: &mut Pair<Cpu>, anchors: &[(&Run, Token, usize)]) -> Result<Vec<Vec<DraftToken>>> {
    let drafter = pair.drafter.as_mut().expect("a drafter");
    let mut copies = Vec::new();
    for (run, ..) in anchors {
        pair.pool.reserve(run.seq, (run.done + drafter.width() + 1) as u32, &mut copies)?;
    }
    assert!(copies.is_empty());
    let anchors: Vec<_> = anchors
        .iter()
        .map(|&(run, token, max)| {
            let blocks = pair.pool.block_table(run.seq);
            Anchor { slice: SeqSlice { start: run.done as u32, len: 1, blocks }, token, max }
        })
        .collect();
    let mut out = vec![Vec::new(); anchors.len()];
    drafter.draft(&anchors, &pair.target, &mut out)?;
    Ok(out)
}

fn check(checkpoint: &Checkpoint, golden: &str, kv: KvType) -> Result<()> {
    let golden = Golden::open(golden);
    let drafter = Some(&*checkpoint.drafter);
    let mut pair = Pair::new(cpu(), &*checkpoint.target, drafter, kv, &[])?;
    let prompts = ["p100", "p7", "p33", "p1"].map(|name| golden.tokens(&format!("{name}.ids")));
    let chunks = [16, 2, 5, 1];
    let batch: Vec<_> = prompts.iter().map(Vec::as_slice).zip(chunks).collect();
    let (runs, together) = beside(&mut pair, &batch)?;
    for (ids, together) in prompts.iter().zip(&together) {
        let alone = alone(&mut pair, ids)?;
        let same = alone.iter().zip(together).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(alone.len() == together.len() && same, "{kv:?}: {} rows", ids.len());
    }

    let anchors: Vec<_> = runs.iter().map(|run| (run, Token(5), 15)).collect();
    let together = drafts(&mut pair, &anchors)?;
    for (&(run, token, _), together) in anchors.iter().zip(&together) {
        let alone = drafts(&mut pair, &[(run, token, 15)])?;
        assert_eq!(&alone[0], together, "{kv:?}: a block after {} rows", run.done);
        let few = drafts(&mut pair, &[(run, token, 4)])?;
        assert_eq!(few[0], together[..4], "{kv:?}: a short block after {} rows", run.done);
        assert!(together.iter().all(|draft| (0.0..=1.0).contains(&draft.confidence)));
    }
    Ok(())
}

#[test]
fn tiny_rows_are_batch_invariant() -> Result<()> {
    for kv in [KvType::F32, KvType::Bf16, KvType::F16, KvType::Q8_0] {
        check(&Checkpoint::tiny()?, "tiny/golden/text_f32.safetensors", kv)?;
    }
    Ok(())
}

#[test]
fn nano_rows_are_batch_invariant() -> Result<()> {
    check(&Checkpoint::nano()?, "nano/raw/text_f32.safetensors", KvType::F32)
}
