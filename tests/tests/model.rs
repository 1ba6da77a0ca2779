//! What the goldens do not reach: finished embeddings, moved pages, memory plans and refusals.

use std::sync::Arc;

use muse_core::contract::{
    Backend, Head, KvPool, KvType, LayerSpec, PageCopy, PageGroup, PageTable, Pages, Place, Rows,
    Scores, Span, Target, TextSpec, Token, WeightSource,
};
use muse_core::model::{Model, ModelOptions, page_bytes};
use muse_core::{Error, Result};
use muse_cpu::Cpu;
use muse_dflash::{Dflash, DflashOptions};
use muse_testkit::Golden;
use muse_tests::checkpoint::{Checkpoint, cpu};
use muse_tests::edited::Edited;
use muse_tests::run::Pair;

fn prompt() -> Vec<Token> {
    Golden::open("tiny/golden/text_f32.safetensors").tokens("p100.ids")
}

/// Scores of the last pass's only asked row.
fn scores(pair: &Pair<Cpu>) -> Result<Vec<u32>> {
    Ok(pair.read_scores(1)?.into_iter().map(f32::to_bits).collect())
}

fn span<'a>(place: Place<'a>, rows: Rows<'a, Cpu>) -> Span<'a, Cpu> {
    Span { place, rows, scores: Scores::Last }
}

#[test]
fn finished_embeddings_are_not_normed_again() -> Result<()> {
    let tiny = Checkpoint::tiny()?;
    let mut pair = Pair::new(cpu(), &*tiny.target, None, KvType::F32, &[])?;
    let ids = prompt();
    let run = pair.open(&ids)?;
    pair.pass(&[(&run, &ids, Scores::Last)])?;
    let want = scores(&pair)?;

    // Tokens, then the embeddings of 40 tokens from row 3 of a buffer on, then tokens.
    let (hidden, eps) = (pair.target.spec().hidden, pair.target.spec().norm_eps);
    let mut raw = pair.backend.alloc(43, hidden)?;
    let mut normed = pair.backend.alloc(43, hidden)?;
    pair.target.embed(&ids[17..60], &mut raw)?;
    pair.backend.rms_norm(&raw, 43, None, eps, &mut normed)?;
    let pages = pair.pool.pages(run.seq);
    let place = |start: u32, rows| Place { start, rows, pages };
    let batch = [
        Span { scores: Scores::None, ..span(place(0, 20), Rows::Tokens(&ids[..20])) },
        Span {
            scores: Scores::None,
            ..span(place(20, 40), Rows::Embeds { buf: &normed, first_row: 3 })
        },
        span(place(60, 40), Rows::Tokens(&ids[60..])),
    ];
    pair.target.forward(&batch)?;
    assert_eq!(scores(&pair)?, want);
    Ok(())
}

/// Pages that were copied, or saved and loaded, answer as those they came from.
#[test]
fn pages_can_move() -> Result<()> {
    let tiny = Checkpoint::tiny()?;
    let drafter = Some(&*tiny.drafter);
    let mut pair = Pair::new(cpu(), &*tiny.target, drafter, KvType::Q8_0, &[])?;
    let ids = prompt();
    let mut run = pair.open(&ids)?;
    pair.pass(&[(&run, &ids[..99], Scores::None)])?;
    pair.keep(&mut run, &ids[..99], 0)?;
    let (full, window, window_base) = {
        let pages = pair.pool.pages(run.seq);
        (pages.full.to_vec(), pages.window.to_vec(), pages.window_base)
    };
    let last = |full: &[u32], window: &[u32], pair: &mut Pair<Cpu>| {
        let pages = PageTable { full, window, window_base };
        let place = Place { start: 99, rows: 1, pages };
        pair.target.forward(&[span(place, Rows::Tokens(&ids[99..]))])?;
        scores(pair)
    };
    let want = last(&full, &window, &mut pair)?;

    let copied = |pages: &[u32]| -> Vec<u32> { pages.iter().map(|page| page + 30).collect() };
    for (group, pages) in [(PageGroup::Full, &full), (PageGroup::Window, &window)] {
        for (&from, to) in pages.iter().zip(copied(pages)) {
            pair.target.copy_pages(&[PageCopy { group, from, to, rows: 64 }])?;
        }
    }
    assert_eq!(last(&copied(&full), &copied(&window), &mut pair)?, want);

    let moved = |pages: &[u32]| -> Vec<u32> { pages.iter().map(|page| page + 40).collect() };
    let mut saved = Vec::new();
    let groups = [(PageGroup::Full, &full), (PageGroup::Window, &window)];
    for (group, pages) in groups {
        pages.iter().try_for_each(|&page| pair.target.save_page(group, page, &mut saved))?;
    }
    let bytes = page_bytes(pair.target.spec(), KvType::Q8_0);
    assert_eq!(saved.len(), full.len() * bytes.full + window.len() * bytes.window);
    let mut rest = &saved[..];
    for (group, pages) in groups {
        for page in moved(pages) {
            pair.target.load_page(group, page, &mut rest)?;
        }
    }
    assert!(rest.is_empty());
    assert_eq!(last(&moved(&full), &moved(&window), &mut pair)?, want);

    let drafter = pair.drafter.as_mut().expect("a drafter");
    let (mut there, mut back) = (Vec::new(), Vec::new());
    drafter.save_page(PageGroup::Full, full[0], &mut there)?;
    assert!(there.is_empty(), "the drafter lives in window pages alone");
    drafter.save_page(PageGroup::Window, window[0], &mut there)?;
    drafter.load_page(PageGroup::Window, window[0] + 40, &mut &there[..])?;
    let copy = PageCopy { group: PageGroup::Window, from: window[0] + 40, to: 50, rows: 64 };
    drafter.copy_pages(&[copy])?;
    drafter.save_page(PageGroup::Window, 50, &mut back)?;
    assert_eq!(there, back);
    assert!(there.iter().any(|&byte| byte != 0), "the page holds what was absorbed");
    Ok(())
}

/// The 30B model: 53,248 bytes a token in bf16, of which a quarter for the full layers.
#[test]
fn page_bytes_of_the_30b_model() -> Result<()> {
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
    let bytes = page_bytes(&spec, KvType::Bf16);
    assert_eq!((bytes.full, bytes.window), (64 * 13_312, 64 * (53_248 - 13_312)));
    assert_eq!(page_bytes(&spec, KvType::F32).full, 2 * bytes.full);
    assert_eq!(page_bytes(&spec, KvType::Q8_0).full, bytes.full / 64 * 34);
    Ok(())
}

/// What a refusal says.
fn refusal(source: &dyn WeightSource, taps: &[usize], kv: KvType) -> Error {
    let options = ModelOptions {
        kv,
        full_pages: 1,
        window_pages: 1,
        max_rows: 1,
        max_scores: 1,
        taps: taps.to_vec(),
    };
    let backend = Arc::new(cpu());
    Model::new(backend, source, &options, &mut |_, _| {}).err().expect("a refusal")
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
    let options = DflashOptions { kv: KvType::F32, window_pages: 1, max_anchors: 1, max_rows: 1 };
    let refusal = |source: &dyn WeightSource| {
        let backend = Arc::new(cpu());
        let drafter = Dflash::new(backend, source, target, &options, &mut |_, _| {});
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
    edited.drafter().block = 1;
    assert!(refusal(&edited).contains("a block of 1 rows"));
    Ok(())
}
