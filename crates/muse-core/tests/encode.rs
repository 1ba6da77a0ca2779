//! Encoders beside llama.cpp's quantizers, and on blocks that have no good answer.

use std::fs;
use std::path::PathBuf;

use muse_core::quant::{Encoder, Format};
use muse_testkit::golden_dir;

const WIDTH: usize = 512;

fn golden(name: &str) -> PathBuf {
    golden_dir().join("quantize").join(name)
}

fn floats(name: &str) -> Vec<f32> {
    let bytes = fs::read(golden(name)).expect("golden values");
    bytes.as_chunks::<4>().0.iter().map(|raw| f32::from_le_bytes(*raw)).collect()
}

fn encoders() -> impl Iterator<Item = Encoder> {
    Format::ALL.iter().filter_map(|format| format.encoder())
}

fn round_trip(encoder: Encoder, values: &[f32], importance: Option<&[f32]>) -> Vec<f32> {
    let mut bytes = vec![0xaa; encoder.format().bytes_for(values.len())];
    encoder.encode(values, importance, &mut bytes);
    let mut out = vec![0.0; values.len()];
    encoder.format().decode(&bytes, &mut out);
    out
}

/// Root of the mean of importance times squared error.
fn error(values: &[f32], got: &[f32], importance: &[f32]) -> f64 {
    let squares = values.iter().zip(got).zip(importance.iter().cycle());
    let sum: f64 =
        squares.map(|((x, y), w)| f64::from(*w) * (f64::from(*x) - f64::from(*y)).powi(2)).sum();
    (sum / values.len() as f64).sqrt()
}

fn check_peer(case: &str, importance: Option<&[f32]>) {
    let text = fs::read_to_string(golden("errors.json")).expect("golden errors");
    let peers: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let values = floats("matrix.f32");
    let peers = peers[case].as_object().expect("errors by format");
    assert!(peers.len() >= 7, "{case}");
    for (name, peer) in peers {
        let encoder = encoders().find(|encoder| encoder.format().name() == name);
        let encoder = encoder.unwrap_or_else(|| panic!("no encoder of {name}"));
        let rows = values.chunks(WIDTH).flat_map(|row| round_trip(encoder, row, importance));
        let got: Vec<f32> = rows.collect();
        let (ours, peer) = (error(&values, &got, importance.unwrap_or(&[1.0])), peer.as_f64());
        let peer = peer.expect("a number");
        println!("{case} {name}: {ours:.4e}, llama.cpp {peer:.4e}, ratio {:.4}", ours / peer);
        // The sum of squares is taken in another order.
        assert!(ours <= peer * (1.0 + 1e-9), "{case} {name}: {ours:e}, llama.cpp {peer:e}");
    }
}

#[test]
fn errors_are_at_most_those_of_llama_cpp() {
    check_peer("matrix", None);
}

#[test]
fn weighted_errors_are_at_most_those_of_llama_cpp() {
    check_peer("matrix by importance", Some(&floats("importance.f32")));
}

#[test]
fn what_a_format_holds_comes_back() {
    for encoder in encoders() {
        let format = encoder.format();
        assert_eq!(round_trip(encoder, &[0.0; 256], None), [0.0; 256], "{format}");
        // 15 steps fit into each range, even that of Q4_0, which is not symmetric.
        let steps: Vec<f32> = (0..256).map(|i| (i % 15 - 8) as f32).collect();
        let got = round_trip(encoder, &steps, None);
        let rounded: Vec<f32> = got.iter().map(|x| x.round()).collect();
        assert_eq!(rounded, steps, "{format}");
    }
}

#[test]
fn values_of_one_sign_and_outliers() {
    let check = |what: &str, values: &[f32], most: f64| {
        let size = error(values, &[0.0].repeat(values.len()), &[1.0]);
        for encoder in encoders() {
            let relative = error(values, &round_trip(encoder, values, None), &[1.0]) / size;
            assert!(relative <= most, "{what} {}: {relative}", encoder.format());
        }
    };
    let wave = |i: usize| (i as f32 * 0.7).sin();
    let of = |value: &dyn Fn(usize) -> f32| (0..512).map(value).collect::<Vec<f32>>();
    check("wave", &of(&wave), 0.07);
    check("positive", &of(&|i| 1.5 + wave(i)), 0.07);
    check("negative", &of(&|i| -1.5 - wave(i)), 0.07);
    check("constant", &of(&|_| -0.3), 0.01);
    check("one value", &of(&|i| if i % 256 == 77 { 3.0 } else { 0.0 }), 0.01);
    check("large", &of(&|i| 3e4 * wave(i)), 0.07);
    check("small", &of(&|i| 3e-3 * wave(i)), 0.07);
}

#[test]
fn no_value_panics() {
    let hostile = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-42];
    for encoder in encoders() {
        for &value in &hostile {
            let mut values = [0.1; 256];
            values[37] = value;
            round_trip(encoder, &values, Some(&[0.0; 256]));
            round_trip(encoder, &[value; 256], Some(&[f32::NAN; 256]));
        }
    }
}

#[test]
fn importance_moves_the_error_elsewhere() {
    let values: Vec<f32> = (0..512).map(|i| (i as f32 * 1.3).sin()).collect();
    let importance: Vec<f32> = (0..512).map(|i| if i % 4 == 0 { 100.0 } else { 1.0 }).collect();
    for encoder in encoders().filter(|encoder| encoder.format().block_values() > 1) {
        let plain = error(&values, &round_trip(encoder, &values, None), &importance);
        let told = error(&values, &round_trip(encoder, &values, Some(&importance)), &importance);
        if encoder.format() == Format::Q8_0 {
            assert_eq!(told, plain, "Q8_0 has no use for it");
        } else {
            assert!(told < plain * 0.95, "{}: {told} of {plain}", encoder.format());
        }
    }
}

#[test]
fn formats_that_are_only_read_have_no_encoder() {
    let written: Vec<&str> = encoders().map(|encoder| encoder.format().name()).collect();
    assert_eq!(
        written,
        ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
    );
}
