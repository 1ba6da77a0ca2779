//! Tests of the backend on the fake device, which stores bytes and computes nothing.

use muse_core::contract::{
    Backend, BlockCopy, History, KvGroup, KvShape, KvType, SampleRow, Sampling, TensorInfo, Token,
    WeightSource, WeightView,
};
use muse_core::quant::Format;
use muse_testkit::suite::backend::{Subject, no_rows_change_nothing};

use super::operations::is_argmax;
use super::*;
use crate::cache::tests::{NO_PROGRESS, Source};
use crate::fake;

fn tt() -> Tt {
    let device = Device::open(fake::library(), fake::OPTIONS).unwrap();
    Tt::on(
        &device,
        TtOptions { device: fake::OPTIONS, bfp_policy: Some(BfpPolicy::Bfp4), positions: 8 },
    )
}

#[test]
fn rows_are_written_to_and_read_from_their_offset() {
    let tt = tt();
    let mut buf = tt.alloc(40, 48).unwrap();
    let rows: Vec<f32> = (0..3 * 48).map(|i| i as f32).collect();
    tt.write(&mut buf, 31, &rows).unwrap();
    let mut all = vec![1.0; 40 * 48];
    tt.read(&buf, 0, &mut all).unwrap();
    assert_eq!((&all[31 * 48..34 * 48], &all[30 * 48..31 * 48]), (&rows[..], &[0.0; 48][..]));
    let mut two = vec![0.0; 2 * 48];
    tt.read(&buf, 32, &mut two).unwrap();
    assert_eq!(two, rows[48..]);
    // Models that capture no hidden states have an empty buffer for them.
    assert_eq!(tt.alloc(0, 0).unwrap().rows, 0);
}

#[test]
fn weights_get_the_format_of_the_policy() {
    let tt = tt();
    let bytes = vec![0_u8; 4 * 64 * 64];
    let view = |name| WeightView {
        name,
        format: Format::F32,
        rows: 64,
        cols: 64,
        bytes: bytes.as_slice().into(),
    };
    for (name, format) in [
        ("blk.1.ffn_up.weight", TileFormat::Bfp4),
        ("blk.1.attn_q.weight", TileFormat::Bfp8),
        ("output.weight", TileFormat::Bfp8),
    ] {
        let LoadedWeight::Matmul(weight) = tt.load(view(name)).unwrap() else { panic!("{name}") };
        assert_eq!(weight.layout().format, format, "{name}");
    }
    let LoadedWeight::Embedding(table) = tt.load(view(EMBEDDING)).unwrap() else {
        panic!("an embedding table")
    };
    assert_eq!((table.rows(), table.cols()), (64, 64));
}

#[test]
fn saved_kv_blocks_are_restored_and_too_few_bytes_are_an_error() {
    let tt = tt();
    let (group, kind) = (KvGroup::Full, KvType::Bf16);
    let shape = KvShape { group, blocks: 3, kv_heads: 2, head_dim: 32, kind };
    let mut kv = tt.alloc_kv(shape).unwrap();
    let values: Vec<f32> = (0..3 * 2 * 64 * 32).map(|i| (i % 200) as f32).collect();
    let other: Vec<f32> = values.iter().map(|x| -x).collect();
    kv.write(&values, &other).unwrap();
    let (mut saved, before) = (Vec::new(), fake::log().moved);
    tt.save_block(&kv, 1, &mut saved).unwrap();
    assert_eq!(saved.len(), shape.block_bytes());
    assert_eq!(fake::log().moved - before, saved.len() as u64, "no other KV block is read");
    kv.write(&vec![0.0; values.len()], &vec![0.0; values.len()]).unwrap();
    let (mut bytes, before) = (&saved[..], fake::log().moved);
    tt.load_block(&mut kv, 2, &mut bytes).unwrap();
    assert!(bytes.is_empty());
    assert_eq!(fake::log().moved - before, saved.len() as u64, "no other KV block is written");
    let block = values.len() / 3;
    let (k, v) = kv.read().unwrap();
    assert_eq!(k[2 * block..], values[block..2 * block]);
    assert_eq!(v[2 * block..], other[block..2 * block]);
    assert!(k[..2 * block].iter().chain(&v[..2 * block]).all(|x| *x == 0.0));
    let error = tt.load_block(&mut kv, 2, &mut &saved[1..]).unwrap_err();
    assert!(error.to_string().contains("delete the saved KV blocks"), "{error}");
}

#[test]
fn kv_blocks_are_copied_on_the_device() {
    let tt = tt();
    let (group, kind) = (KvGroup::Full, KvType::Bf16);
    let mut kv =
        tt.alloc_kv(KvShape { group, blocks: 3, kv_heads: 2, head_dim: 32, kind }).unwrap();
    let copies = [KvGroup::Full, KvGroup::Window].map(|group| BlockCopy {
        group,
        from: 2,
        to: 0,
        positions: 5,
    });
    let before = fake::log();
    tt.copy_blocks(&mut kv, &copies).unwrap();
    let after = fake::log();
    assert_eq!(after.runs - before.runs, 4, "each head of K and of V, and none of the other group");
    // The host sends only the row indices.
    assert_eq!(after.moved - before.moved, 4 * 64);
}

#[test]
fn operations_on_no_rows_start_no_program() {
    let tt = tt();
    let stored = |x| half::bf16::from_f32(x).to_f32();
    let subject = Subject { stored, kinds: &[KvType::Bf16], ..Subject::new(&tt, 0.0) };
    no_rows_change_nothing(&subject);
    assert_eq!(fake::log().runs, 0);
}

#[test]
fn sampling_that_is_more_than_argmax_reads_the_logits() {
    let tt = tt();
    let mut logits = tt.alloc(2, 40).unwrap();
    let row: Vec<f32> = (0..80).map(|i| if i == 47 { 9.0 } else { 0.0 }).collect();
    tt.write(&mut logits, 0, &row).unwrap();
    let (sampling, history) = (Sampling::default(), History::default());
    let request = SampleRow {
        row: 1,
        sampling: &sampling,
        history: &history,
        drafted: &[],
        mask: None,
        position: 0,
        logprobs: Some(1),
    };
    let mut sampled = Vec::new();
    tt.sample(&logits, &[request], &mut sampled).unwrap();
    assert_eq!((sampled[0].token, sampled[0].top.len()), (Token(7), 1));
    assert!(is_argmax(&SampleRow { logprobs: None, ..request }) && !is_argmax(&request));
}

#[test]
fn weights_from_the_cache_equal_freshly_converted_ones() {
    const NAME: &str = "blk.0.ffn_down.weight";
    let source = Source::new(&[(EMBEDDING, 40, 64), (NAME, 70, 512)]);
    let folder = tempfile::tempdir().unwrap();
    let bytes = |tt: &Tt| {
        let LoadedWeight::Matmul(weight) = tt.load(source.weight(NAME).unwrap()).unwrap() else {
            panic!("a matmul weight")
        };
        let mut bytes = vec![0; weight.buffer.bytes() as usize];
        weight.buffer.read(&mut bytes).unwrap();
        bytes
    };
    let tt = tt();
    let expected = bytes(&tt);
    let cache = || WeightCache::open(folder.path(), &source, 1, NO_PROGRESS).unwrap();
    let format_of = |tensor: &TensorInfo| BfpPolicy::Bfp4.format(&tensor.name);
    cache().fill(&source, &format_of, 1, NO_PROGRESS).unwrap();
    let tt = tt.with_cache(cache());
    assert_eq!(bytes(&tt), expected);
    assert!(matches!(tt.load(source.weight(EMBEDDING).unwrap()), Ok(LoadedWeight::Embedding(_))));
}
