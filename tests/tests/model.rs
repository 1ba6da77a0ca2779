//! The text model and the drafter, and the fakes of both, under the suites of their contracts; and
//! what neither those nor the goldens reach: finished embeddings, moved KV blocks, memory, refusals.

use std::sync::Arc;

use muse_core::contract::{
    Backend, BatchEntry, BatchInput, BlockCopy, BlockCount, BlockTable, EmbeddingAndLmHead,
    Footprint, KvBlocks, KvGroup, KvPool, KvType, LayerSpec, LogitsRequest, ModelSizes, SeqSlice,
    TargetModel, TextSpec, Token, WeightSource,
};
use muse_core::model::{Model, ModelFootprint};
use muse_core::{Error, Result};
use muse_cpu::Cpu;
use muse_dflash::Dflash;
use muse_testkit::Golden;
use muse_tests::checkpoint::{Checkpoint, cpu};
use muse_tests::edited::Edited;
use muse_tests::run::Pair;

mod suites {
    //! One line per implementer.

    use muse_testkit::fake::{FakeBackend, FakeDrafter, FakeModel, FakeOptions, FakeTarget};
    use muse_testkit::suite::{drafter, target};

    use super::*;

    fn sizes(kv: KvType) -> ModelSizes {
        ModelSizes {
            kv,
            blocks: BlockCount { full: drafter::MIN_BLOCKS, window: drafter::MIN_BLOCKS },
            max_num_seqs: 2,
            max_num_batched_tokens: target::MIN_TOKENS,
            max_logits_rows: target::MIN_TOKENS,
        }
    }

    fn model(kv: KvType) -> target::Subject<Cpu> {
        let (tiny, backend) = (Checkpoint::tiny().expect("part of the tree"), Arc::new(cpu()));
        let layers = &[1, 3];
        let model = Model::new(backend.clone(), &*tiny.target, &sizes(kv), layers, &mut |_, _| {});
        let target = model.expect("a model");
        let captured = layers.len() * target.spec().hidden;
        target::Subject { backend, target: Box::new(target), captured }
    }

    fn dflash() -> drafter::Subject<Cpu> {
        let (tiny, backend) = (Checkpoint::tiny().expect("part of the tree"), Arc::new(cpu()));
        let (sizes, quiet) = (sizes(KvType::Bf16), &mut |_, _| {});
        let text = tiny.target.spec().text.as_ref().expect("a text model");
        // Contexts and anchors of the suite take several passes of the drafter.
        let small = ModelSizes { max_num_batched_tokens: 48, ..sizes };
        let drafter = Dflash::new(backend.clone(), &*tiny.drafter, text, &small, quiet);
        let drafter = drafter.expect("a drafter");
        let layers = &tiny.drafter.spec().drafter.as_ref().expect("a drafter").target_layers;
        let model = Model::new(backend.clone(), &*tiny.target, &sizes, layers, quiet);
        let target = Box::new(model.expect("a model"));
        drafter::Subject { backend, target, drafter: Box::new(drafter) }
    }

    fn fakes() -> (target::Subject<FakeBackend>, FakeModel) {
        let options = FakeOptions { max_logits_rows: target::MIN_TOKENS, ..FakeOptions::default() };
        let (backend, model) = (Arc::default(), FakeModel::new(options));
        let target = FakeTarget::new(Arc::clone(&backend), model.clone()).expect("a target");
        (target::Subject { backend, target: Box::new(target), captured: 1 }, model)
    }

    fn fake_drafter() -> drafter::Subject<FakeBackend> {
        let (target::Subject { backend, target, .. }, model) = fakes();
        let drafter = FakeDrafter::new(Arc::clone(&backend), model, 7, 70, 0.8);
        drafter::Subject { backend, target, drafter: Box::new(drafter) }
    }

    mod model_with_f32 {
        muse_testkit::suite::target!(super::model(super::KvType::F32));
    }

    mod model_with_q8_0 {
        muse_testkit::suite::target!(super::model(super::KvType::Q8_0));
    }

    mod fake_target {
        muse_testkit::suite::target!(super::fakes().0);
    }

    mod dflash {
        muse_testkit::suite::drafter!(super::dflash());
    }

    mod fake_dflash {
        muse_testkit::suite::drafter!(super::fake_drafter());
    }
}

fn prompt() -> Vec<Token> {
    Golden::open("tiny/golden/text_f32.safetensors").tokens("p100.ids")
}

/// Logits of the last pass, which asked for one row.
fn logits(pair: &Pair<Cpu>) -> Result<Vec<u32>> {
    Ok(pair.read_logits(1)?.into_iter().map(f32::to_bits).collect())
}

fn entry<'a>(slice: SeqSlice<'a>, input: BatchInput<'a, Cpu>) -> BatchEntry<'a, Cpu> {
    BatchEntry { slice, input, logits: LogitsRequest::Last }
}

#[test]
fn finished_embeddings_are_not_normed_again() -> Result<()> {
    let tiny = Checkpoint::tiny()?;
    let mut pair = Pair::new(cpu(), &*tiny.target, None, KvType::F32, &[])?;
    let ids = prompt();
    let run = pair.open(&ids)?;
    pair.pass(&[(&run, &ids, LogitsRequest::Last)])?;
    let want = logits(&pair)?;

    // Tokens, then the embeddings of 40 tokens from row 3 of a buffer on, then tokens.
    let (hidden, eps) = (pair.target.spec().hidden, pair.target.spec().norm_eps);
    let mut raw = pair.backend.alloc(43, hidden)?;
    let mut normed = pair.backend.alloc(43, hidden)?;
    pair.target.embed(&ids[17..60], &mut raw)?;
    pair.backend.rms_norm(&raw, 43, None, eps, &mut normed)?;
    let blocks = pair.pool.block_table(run.seq);
    let slice = |start: u32, rows| SeqSlice { start, len: rows, blocks };
    let batch = [
        BatchEntry {
            logits: LogitsRequest::None,
            ..entry(slice(0, 20), BatchInput::Tokens(&ids[..20]))
        },
        BatchEntry {
            logits: LogitsRequest::None,
            ..entry(slice(20, 40), BatchInput::Embeds { buf: &normed, first_row: 3 })
        },
        entry(slice(60, 40), BatchInput::Tokens(&ids[60..])),
    ];
    pair.target.forward(&batch)?;
    assert_eq!(logits(&pair)?, want);
    Ok(())
}

/// KV blocks that were copied, or saved and loaded, answer as those they came from.
#[test]
fn blocks_can_move() -> Result<()> {
    let tiny = Checkpoint::tiny()?;
    let drafter = Some(&*tiny.drafter);
    let mut pair = Pair::new(cpu(), &*tiny.target, drafter, KvType::Q8_0, &[])?;
    let ids = prompt();
    let mut run = pair.open(&ids)?;
    pair.pass(&[(&run, &ids[..99], LogitsRequest::None)])?;
    pair.keep(&mut run, &ids[..99], 0)?;
    let (full, window, window_base) = {
        let blocks = pair.pool.block_table(run.seq);
        (blocks.full.to_vec(), blocks.window.to_vec(), blocks.window_base)
    };
    let last = |full: &[u32], window: &[u32], pair: &mut Pair<Cpu>| {
        let blocks = BlockTable { full, window, window_base };
        let slice = SeqSlice { start: 99, len: 1, blocks };
        pair.target.forward(&[entry(slice, BatchInput::Tokens(&ids[99..]))])?;
        logits(pair)
    };
    let want = last(&full, &window, &mut pair)?;

    let copied = |blocks: &[u32]| -> Vec<u32> { blocks.iter().map(|block| block + 30).collect() };
    for (group, blocks) in [(KvGroup::Full, &full), (KvGroup::Window, &window)] {
        for (&from, to) in blocks.iter().zip(copied(blocks)) {
            pair.target.copy_blocks(&[BlockCopy { group, from, to, positions: 64 }])?;
        }
    }
    assert_eq!(last(&copied(&full), &copied(&window), &mut pair)?, want);

    let moved = |blocks: &[u32]| -> Vec<u32> { blocks.iter().map(|block| block + 40).collect() };
    let mut saved = Vec::new();
    let groups = [(KvGroup::Full, &full), (KvGroup::Window, &window)];
    for (group, blocks) in groups {
        blocks.iter().try_for_each(|&block| pair.target.save_block(group, block, &mut saved))?;
    }
    let footprint = ModelFootprint { spec: pair.target.spec(), captured_layers: 0 };
    let bytes = footprint.block_bytes(KvType::Q8_0);
    assert_eq!(saved.len(), full.len() * bytes.full + window.len() * bytes.window);
    let mut rest = &saved[..];
    for (group, blocks) in groups {
        for block in moved(blocks) {
            pair.target.load_block(group, block, &mut rest)?;
        }
    }
    assert!(rest.is_empty());
    assert_eq!(last(&moved(&full), &moved(&window), &mut pair)?, want);

    let drafter = pair.drafter.as_mut().expect("a drafter");
    let (mut there, mut back) = (Vec::new(), Vec::new());
    drafter.save_block(KvGroup::Full, full[0], &mut there)?;
    assert!(there.is_empty(), "the drafter lives in window blocks alone");
    drafter.save_block(KvGroup::Window, window[0], &mut there)?;
    drafter.load_block(KvGroup::Window, window[0] + 40, &mut &there[..])?;
    let copy = BlockCopy { group: KvGroup::Window, from: window[0] + 40, to: 50, positions: 64 };
    drafter.copy_blocks(&[copy])?;
    drafter.save_block(KvGroup::Window, 50, &mut back)?;
    assert_eq!(there, back);
    assert!(there.iter().any(|&byte| byte != 0), "the block holds what was absorbed");
    Ok(())
}

/// The 30B model: 53,248 bytes a token in bf16, of which a quarter for the full layers.
#[test]
fn block_bytes_of_the_30b_model() -> Result<()> {
    let tiny = Checkpoint::tiny()?;
    let layer = |i: usize| match i % 4 {
        3 => LayerSpec { window: None, rope: false },
        _ => LayerSpec { window: Some(2048), rope: true },
    };
    let spec = TextSpec {
        kv_heads: 2,
        head_dim: 128,
        layers: (0..52).map(layer).collect(),
        ..tiny.target.spec().text.clone().expect("a text model")
    };
    let footprint = ModelFootprint { spec: &spec, captured_layers: 0 };
    let bytes = footprint.block_bytes(KvType::Bf16);
    assert_eq!((bytes.full, bytes.window), (64 * 13_312, 64 * (53_248 - 13_312)));
    assert_eq!(footprint.block_bytes(KvType::F32).full, 2 * bytes.full);
    assert_eq!(footprint.block_bytes(KvType::Q8_0).full, bytes.full / 64 * 34);
    assert_eq!(footprint.window_reach(), 2047);
    Ok(())
}

fn smallest(kv: KvType) -> ModelSizes {
    ModelSizes {
        kv,
        blocks: BlockCount { full: 1, window: 1 },
        max_num_seqs: 1,
        max_num_batched_tokens: 1,
        max_logits_rows: 1,
    }
}

/// Why a model cannot be loaded.
fn refusal(source: &dyn WeightSource, captured_layers: &[usize], kv: KvType) -> Error {
    let backend = Arc::new(cpu());
    let model = Model::new(backend, source, &smallest(kv), captured_layers, &mut |_, _| {});
    model.err().expect("a refusal")
}

#[test]
fn models_that_do_not_fit_are_refused() -> Result<()> {
    let tiny = Checkpoint::tiny()?;
    let error = refusal(&*tiny.drafter, &[], KvType::F32);
    assert!(matches!(&error, Error::Invalid(m) if m.contains("no text model")), "{error}");
    let error = refusal(&*tiny.target, &[3, 8], KvType::F32);
    assert!(matches!(&error, Error::Invalid(m) if m.contains("layer 8")), "{error}");

    let mut edited = Edited::new(&*tiny.target);
    edited.text().ffn = 300;
    let error = refusal(&edited, &[], KvType::F32);
    let named = |m: &str| m.contains("blk.0.ffn_gate.weight") && m.contains("[300, 128]");
    assert!(matches!(&error, Error::Corrupt(m) if named(m)), "{error}");
    edited.text().kv_heads = 3;
    let error = refusal(&edited, &[], KvType::F32);
    assert!(matches!(&error, Error::Corrupt(m) if m.contains("3 K/V heads")), "{error}");
    edited.text().head_dim = 40;
    edited.text().kv_heads = 2;
    let error = refusal(&edited, &[], KvType::Q8_0);
    assert!(matches!(&error, Error::Unsupported(m) if m.contains("bf16")), "{error}");
    Ok(())
}

#[test]
fn drafters_of_other_models_are_refused() -> Result<()> {
    let (tiny, nano) = (Checkpoint::tiny()?, Checkpoint::nano()?);
    let target = tiny.target.spec().text.as_ref().expect("a text model");
    let refusal = |source: &dyn WeightSource| {
        let backend = Arc::new(cpu());
        let drafter = Dflash::new(backend, source, target, &smallest(KvType::F32), &mut |_, _| {});
        drafter.err().expect("a refusal").to_string()
    };
    assert!(refusal(&*nano.drafter).contains("256, the model's is 128"));
    assert!(refusal(&*tiny.target).contains("no DFlash drafter"));
    let mut edited = Edited::new(&*tiny.drafter);
    edited.drafter().target_layers = vec![1, 3, 8];
    assert!(refusal(&edited).contains("reads layer 8"));
    edited.drafter().target_layers = vec![1, 3];
    assert!(refusal(&edited).contains("fc.weight is [128, 384]"));
    edited.drafter().mask_token = 1024;
    assert!(refusal(&edited).contains("mask token is 1024"));
    edited.drafter().draft_block = 1;
    assert!(refusal(&edited).contains("a draft block of 1 tokens"));
    Ok(())
}
