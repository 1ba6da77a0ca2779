//! Logits as a server computes them, with rounded activations and a 16-bit cache, beside exact
//! products with the same quantized weights, for every type that is written. The exact products are
//! those that the golden tests hold to the reference, the decoders those of the golden blocks.

use std::path::Path;

use muse_core::Result;
use muse_core::contract::{KvType, LogitsRequest, WeightSource};
use muse_core::quant::Format;
use muse_cpu::Cpu;
use muse_testkit::{Golden, golden_dir, nano_dir};
use muse_tests::checkpoint::{cpu, fast_cpu};
use muse_tests::run::Pair;
use muse_weights::{Checkpoint, ModelKind, QuantizeOptions, QuantizeProgress, quantize};

/// llama.cpp's distance (b11434, F16 cache, AVX-512) from exact products on the same files and
/// prompts, as `golden/produce/llama_distances.py` prints it: mean difference of a score, share of
/// rows with the same best token.
type Distances = &'static [(Format, f32, f32)];

const NANO: Distances = &[
    (Format::F32, 0.0015, 0.992),
    (Format::F16, 0.0024, 0.992),
    (Format::Bf16, 0.0141, 0.985),
    (Format::Q8_0, 0.0461, 0.985),
    (Format::Q4_0, 0.0466, 0.962),
    (Format::Q4_1, 0.0463, 0.985),
    (Format::Q5_0, 0.0461, 0.970),
    (Format::Q5_1, 0.0453, 0.977),
    (Format::Q4K, 0.0632, 0.962),
    (Format::Q5K, 0.0677, 0.970),
    (Format::Q6K, 0.0655, 0.977),
];

/// Its rows of 128 are no whole blocks of 256.
const TINY: Distances = &[
    (Format::F32, 0.0100, 1.0),
    (Format::F16, 0.0162, 0.985),
    (Format::Bf16, 0.1077, 0.947),
    (Format::Q8_0, 0.4371, 0.865),
    (Format::Q4_0, 0.4143, 0.850),
    (Format::Q4_1, 0.4386, 0.820),
    (Format::Q5_0, 0.4028, 0.774),
    (Format::Q5_1, 0.4062, 0.865),
];

/// Both round, but not alike: of 133 rows some fall to either side.
const MORE: f32 = 1.1;
const FEWER: f32 = 0.04;

/// Logits of all rows of prompts, each in one pass, and the best token of each row.
fn logits(
    cpu: Cpu,
    source: &dyn WeightSource,
    kv: KvType,
    prompts: &[Vec<muse_core::contract::Token>],
) -> Result<(Vec<f32>, Vec<u32>)> {
    let mut pair = Pair::new(cpu, source, None, kv, &[])?;
    let (mut all, mut best) = (Vec::new(), Vec::new());
    for prompt in prompts {
        let run = pair.open(prompt)?;
        pair.pass(&[(&run, prompt, LogitsRequest::All)])?;
        all.extend(pair.read_logits(prompt.len())?);
        best.extend(pair.best(0..prompt.len())?.iter().map(|token| token.0));
    }
    Ok((all, best))
}

fn check(folder: &Path, golden: &str, distances: Distances) -> Result<()> {
    let golden = Golden::open(golden);
    let prompts = ["p33.ids", "p100.ids"].map(|ids| golden.tokens(ids));
    let source = Checkpoint::open(folder)?;
    let out = tempfile::tempdir().expect("a folder");
    for &(format, llama, llama_equal) in distances {
        let path = out.path().join(format!("{format}.gguf"));
        let options = QuantizeOptions {
            kind: ModelKind::Text,
            format,
            lm_head: format,
            imatrix: None,
            vocabulary: None,
            threads: 1,
        };
        let mut fallback = false;
        quantize(&source, &path, &options, &mut |step| {
            if let QuantizeProgress::Tensor(written) = step {
                fallback |= written.requested.is_some();
            }
        })?;
        assert!(!fallback, "{format}: every row is whole blocks");
        let file = Checkpoint::open(&path)?;
        let (want, want_best) = logits(cpu(), &file, KvType::F32, &prompts)?;
        let (got, best) = logits(fast_cpu(), &file, KvType::F16, &prompts)?;
        let sum: f64 = got.iter().zip(&want).map(|(a, b)| f64::from((a - b).abs())).sum();
        let mean = (sum / want.len() as f64) as f32;
        let equal = best.iter().zip(&want_best).filter(|(a, b)| a == b).count() as f32;
        let equal = equal / best.len() as f32;
        println!("{format}: mean difference {mean:.4}, {:.1} % equal", 100.0 * equal);
        let most = MORE * llama;
        assert!(mean <= most, "{format}: logits differ by {mean} on average, {most} is allowed");
        let least = llama_equal - FEWER;
        assert!(equal >= least, "{format}: {equal} of the best tokens are equal, {least} wanted");
    }
    Ok(())
}

#[test]
fn nano_in_every_type_that_is_written() -> Result<()> {
    let mut written = Format::ALL.iter().filter(|format| format.encoder().is_some());
    let missing = |format: &&Format| NANO.iter().all(|(known, ..)| *known != **format);
    assert_eq!(written.find(missing), None, "a type without a distance");
    check(&nano_dir().join("target"), "nano/raw/text_f32.safetensors", NANO)
}

#[test]
fn tiny_in_types_of_short_blocks() -> Result<()> {
    let golden = "tiny/golden/text_f32.safetensors";
    check(&golden_dir().join("tiny/target"), golden, TINY)
}
