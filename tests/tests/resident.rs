//! A loaded model takes the memory of its packed weights: the KV blocks of the file are let go.
#![cfg(target_os = "linux")]

use std::sync::Arc;

use muse_core::Result;
use muse_core::contract::{
    Backend, BlockCount, Footprint, KvType, ModelSizes, TextSpec, WeightSource,
};
use muse_core::model::{Model, ModelFootprint};
use muse_core::quant::Format;
use muse_tests::checkpoint::fast_cpu;
use muse_tests::wide;
use muse_weights::Checkpoint;

const MB: usize = 1 << 20;
const KV_BLOCKS: usize = 4;

/// Bytes of this process that are in memory: of files, and of its own.
fn resident() -> [usize; 2] {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    ["RssFile:", "RssAnon:"].map(|name| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        let kib = line.trim().strip_suffix(" kB").expect("kilobytes");
        1024 * kib.trim().parse::<usize>().expect("a number")
    })
}

#[test]
fn a_loaded_model_holds_its_weights_once() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = TextSpec { hidden: 1024, ffn: 4096, vocab: 4096, ..wide::shape(4) };
    let backend = Arc::new(fast_cpu());
    // Formats that are repacked, one of them with more bits, and one that stays as in the file.
    for format in [Format::Q8_0, Format::Q4K, Format::Q6K, Format::Q2K, Format::Bf16, Format::F16] {
        let path = folder.path().join(format!("{format}.gguf"));
        let bytes = wide::write(&spec, format, format, &path).expect("written") as usize;
        let [file, own] = resident();
        let checkpoint = Checkpoint::open(&path)?;
        let matrices = checkpoint.tensors().iter().filter(|tensor| tensor.rows > 1);
        let planned = matrices.map(|it| backend.weight_bytes(it));
        let planned = planned.sum::<u64>() as usize;
        assert!(planned > 40 * MB, "{format}: {planned} bytes are too few to see");
        if format != Format::Q2K {
            assert!(planned <= bytes + bytes / 20, "{format}: {planned} for a file of {bytes}");
        }
        let sizes = ModelSizes {
            kv: KvType::default(),
            blocks: BlockCount { full: KV_BLOCKS, window: KV_BLOCKS },
            max_num_seqs: 1,
            max_num_batched_tokens: 64,
            max_logits_rows: 1,
        };
        let model = Model::new(Arc::clone(&backend), &checkpoint, &sizes, &[], &mut |_, _| {})?;
        let [file_after, own_after] = resident();
        let footprint = ModelFootprint { spec: &spec, captured_layers: 0 };
        let blocks = footprint.block_bytes(sizes.kv);
        let most = planned + planned / 20 + KV_BLOCKS * (blocks.full + blocks.window) + 8 * MB;
        let grown = own_after.saturating_sub(own);
        assert!(grown <= most, "{format}: {grown} bytes where {planned} were planned");
        let grown = file_after.saturating_sub(file);
        assert!(grown <= 8 * MB, "{format}: {grown} bytes of the file are still held");
        drop(model);
    }
    Ok(())
}
