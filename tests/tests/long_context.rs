//! Long prompts: needles are found wherever they lie, rotation stays exact, memory grows as planned.
//! The run over all 131,072 positions is `cargo run -p muse-tests --bin long`.

use muse_core::Result;
use muse_core::contract::{
    Backend, BlockTable, Footprint, KV_BLOCK_SIZE, KvType, LayerSpec, Rope, SeqSlice, TextSpec,
};
use muse_core::model::ModelFootprint;
use muse_tests::checkpoint::cpu;
use muse_tests::haystack::search;

#[test]
fn needles_are_found_in_sixteen_thousand_tokens() -> Result<()> {
    for (i, found) in search(16_384, 7, Some(1))?.into_iter().enumerate() {
        assert_eq!(found.answer, found.expected, "{found:?}");
        assert!(found.logprob > -1e-3, "{found:?}");
        // Only the question differs; the window of the sliding layer is there again.
        assert_eq!(found.cached, if i == 0 { 0 } else { 16_382 });
    }
    Ok(())
}

#[test]
fn the_answer_is_the_needles_own() -> Result<()> {
    let answers = |seed| -> Result<Vec<_>> {
        Ok(search(300, seed, Some(1))?
            .into_iter()
            .map(|found| (found.answer, found.expected))
            .collect())
    };
    let all: Vec<_> = (0..6).map(answers).collect::<Result<Vec<_>>>()?.concat();
    assert!(all.iter().all(|(answer, expected)| answer == expected), "{all:?}");
    assert!(all.iter().any(|pair| *pair != all[0]), "values differ by seed");
    Ok(())
}

#[test]
fn rotation_at_the_last_positions_is_exact() -> Result<()> {
    let (dim, theta) = (128, 500_000.0_f32);
    let backend = cpu();
    for position in [0, 1, 2047, 16_384, 131_070, 131_071_u32] {
        let mut buf = backend.alloc(1, dim)?;
        let row: Vec<f32> = (0..dim).map(|i| if i < dim / 2 { 1.0 } else { 0.0 }).collect();
        backend.write(&mut buf, 0, &row)?;
        let slice = SeqSlice { start: position, len: 1, blocks: BlockTable::default() };
        backend.rope(&mut buf, &[slice], &Rope { head_dim: dim, theta })?;
        let mut out = vec![0.0; dim];
        backend.read(&buf, 0, &mut out)?;
        for j in 0..dim / 2 {
            let frequency = f64::from(theta).powf(-2.0 * j as f64 / dim as f64);
            let (cos, sin) = (f64::from(out[j]), f64::from(out[j + dim / 2]));
            // Sine and cosine of the angle that f32 holds, as the reference computes it.
            let angle = f64::from(position as f32 * frequency as f32);
            assert!((cos - angle.cos()).abs() < 1e-6, "{position}, {j}: {cos}");
            assert!((sin - angle.sin()).abs() < 1e-6, "{position}, {j}: {sin}");
            // That angle itself is off by two roundings at most.
            let exact = f64::from(position) * frequency;
            let tolerance = exact * 2.0_f64.powi(-23) + 1e-6;
            assert!((cos - exact.cos()).abs() < tolerance && (sin - exact.sin()).abs() < tolerance);
        }
    }
    Ok(())
}

#[test]
fn the_published_model_takes_13312_bytes_a_token_and_its_windows() {
    let layer = |i| match i % 4 == 3 {
        true => LayerSpec { window: None, rope: false },
        false => LayerSpec { window: Some(2048), rope: true },
    };
    let spec = TextSpec {
        hidden: 6656,
        ffn: 19_968,
        heads: 32,
        kv_heads: 2,
        head_dim: 128,
        vocab: 202_048,
        layers: (0..52).map(layer).collect(),
        norm_eps: 1e-5,
        post_norm_eps: 1e-8,
        rope_theta: 500_000.0,
        logit_scale: 1.0,
        logit_softcap: None,
        max_positions: 131_072,
        image_token: None,
    };
    let footprint = ModelFootprint { spec: &spec, captured_layers: 0 };
    let bytes = footprint.block_bytes(KvType::Bf16);
    assert_eq!(bytes.full, 13_312 * KV_BLOCK_SIZE);
    assert_eq!(bytes.window, 39 * 1024 * KV_BLOCK_SIZE);
    // All positions of one sequence: 1.74 GB, and 81.8 MB for every 2048 positions of windows.
    assert_eq!(bytes.full * 131_072 / KV_BLOCK_SIZE, 1_744_830_464);
    assert_eq!(bytes.window * 2048 / KV_BLOCK_SIZE, 81_788_928);
}
