//! What the published drafter of Muse-Glimmer-30B takes beside its weights: K/V cache and scratch.

use muse_core::contract::{BlockCount, DrafterSpec, Footprint, KV_BLOCK_SIZE, KvType, ModelSizes};
use muse_dflash::DflashFootprint;

fn main() {
    let spec = DrafterSpec {
        hidden: 6656,
        ffn: 19968,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        layers: 5,
        norm_eps: 1e-5,
        rope_theta: 5e5,
        reach: 2048,
        draft_block: 16,
        mask_token: 201_818,
        target_layers: vec![1, 13, 25, 37, 49],
    };
    let footprint = DflashFootprint { spec: &spec, vocab: 202_048 };
    // Enough KV blocks for what one sequence attends to and one draft block.
    let positions = spec.reach as usize + spec.draft_block;
    let window = positions.div_ceil(KV_BLOCK_SIZE) + 1;
    for kv in [KvType::Bf16, KvType::Q8_0] {
        let bytes = window * footprint.block_bytes(kv).window;
        println!("{kv:?}: {:.1} MB of K/V for one sequence", bytes as f64 / 1e6);
    }
    for max_num_seqs in [1, 8] {
        let sizes = ModelSizes {
            kv: KvType::Bf16,
            blocks: BlockCount { full: 0, window: max_num_seqs * window },
            max_num_seqs,
            max_num_batched_tokens: 512,
            max_logits_rows: 0,
        };
        let scratch = footprint.scratch_bytes(&sizes) as f64 / 1e6;
        println!("{max_num_seqs} draft blocks in a pass: {scratch:.1} MB of scratch");
    }
}
