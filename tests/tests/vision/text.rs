//! Rows of a picture in the text model, in place of its placeholder tokens.

use muse_core::Result;
use muse_core::contract::{
    BatchEntry, BatchInput, KvPool, KvType, LogitsRequest, SeqSlice, TargetModel, Token,
    VisionEncoder,
};
use muse_testkit::{Golden, assert_close};
use muse_tests::checkpoint::cpu;
use muse_tests::run::Pair;
use muse_vision::{Encoder, TableOrder, TowerOptions};

use super::{WHOLE, nano, picture, tiny, tower};

/// Logits reach 16; the reference itself differs by 1.5e-4 from float64.
const LOGITS: f32 = 5e-4;

fn check(source: &muse_weights::Checkpoint, golden: &str) -> Result<()> {
    let golden = Golden::open(golden);
    let mut pair = Pair::new(cpu(), source, None, KvType::F32, &[])?;
    let options = TowerOptions {
        table_order: TableOrder::Swapped,
        kv: KvType::F32,
        row_norm_eps: pair.target.spec().norm_eps,
        ..TowerOptions::default()
    };
    let mut encoder = Encoder::new(tower(&pair.backend, source, options)?, 0);
    let patches = picture(&golden, "e_100x75").patches();
    let id = encoder.begin(&patches)?;
    let rows = encoder.advance(id, WHOLE)?.expect("a whole picture");

    let ids = golden.tokens("e2e.ids");
    let placeholder = Token(pair.target.spec().image_token.expect("a placeholder"));
    let first = ids.iter().position(|id| *id == placeholder).expect("a picture");
    let count = ids.iter().filter(|id| **id == placeholder).count();
    assert_eq!(count, encoder.rows(&patches));
    let mut run = pair.open(&ids)?;
    pair.pool.reserve(run.seq, ids.len() as u32, &mut Vec::new())?;
    let blocks = pair.pool.block_table(run.seq);
    let entry = |start: usize, len, input, logits| {
        let slice = SeqSlice { start: start as u32, len, blocks };
        BatchEntry { slice, input, logits }
    };
    let (behind, none) = (first + count, LogitsRequest::None);
    pair.target.forward(&[
        entry(0, first, BatchInput::Tokens(&ids[..first]), none),
        entry(first, count, BatchInput::Embeds { buf: &*rows, first_row: 0 }, none),
        entry(behind, ids.len() - behind, BatchInput::Tokens(&ids[behind..]), LogitsRequest::All),
    ])?;
    let asked = ids.len() - behind;
    let (shape, want) = golden.floats("e2e.logits_last4");
    let logits = pair.read_logits(asked)?;
    assert_close("logits", &logits[(asked - shape[0]) * shape[1]..], want, LOGITS);

    let greedy = golden.tokens("e2e.greedy");
    let mut token = pair.best(asked - 1..asked)?[0];
    pair.keep(&mut run, &ids, 0)?;
    for want in &greedy[ids.len()..] {
        assert_eq!(token, *want, "after {} tokens", run.done);
        pair.pass(&[(&run, &[token], LogitsRequest::Last)])?;
        pair.keep(&mut run, &[token], 0)?;
        token = pair.best(0..1)?[0];
    }
    Ok(())
}

#[test]
fn tiny_text_with_a_picture() -> Result<()> {
    check(&tiny()?, "tiny/golden/vision_f32.safetensors")
}

#[test]
fn nano_text_with_a_picture() -> Result<()> {
    check(&nano()?, "nano/raw/vision_f32.safetensors")
}
