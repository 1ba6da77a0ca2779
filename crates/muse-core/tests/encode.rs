//! Encoders against llama.cpp's quantizers, and on blocks without a good encoding.

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

fn check_against_llama_cpp(case: &str, importance: Option<&[f32]>) {
    let text = fs::read_to_string(golden("errors.json")).expect("golden errors");
    let errors: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let values = floats("matrix.f32");
    let errors = errors[case].as_object().expect("errors by format");
    assert!(errors.len() >= 7, "{case}");
    for (name, theirs) in errors {
        let encoder = encoders().find(|encoder| encoder.format().name() == name);
        let encoder = encoder.unwrap_or_else(|| panic!("no encoder of {name}"));
        let rows = values.chunks(WIDTH).flat_map(|row| round_trip(encoder, row, importance));
        let got: Vec<f32> = rows.collect();
        let ours = error(&values, &got, importance.unwrap_or(&[1.0]));
        let theirs = theirs.as_f64().expect("a number");
        println!("{case} {name}: {ours:.4e}, llama.cpp {theirs:.4e}, ratio {:.4}", ours / theirs);
        // The factor allows for another order of summation.
        assert!(ours <= theirs * (1.0 + 1e-9), "{case} {name}: {ours:e}, llama.cpp {theirs:e}");
    }
}

#[test]
fn errors_are_at_most_those_of_llama_cpp() {
    check_against_llama_cpp("matrix", None);
}

#[test]
fn weighted_errors_are_at_most_those_of_llama_cpp() {
    check_against_llama_cpp("matrix by importance", Some(&floats("importance.f32")));
}

#[test]
fn representable_values_round_trip() {
    for encoder in encoders() {
        let format = encoder.format();
        assert_eq!(round_trip(encoder, &[0.0; 256], None), [0.0; 256], "{format}");
        // 15 steps fit into the range of every format, even that of Q4_0, which is not symmetric.
        let steps: Vec<f32> = (0..256).map(|i| (i % 15 - 8) as f32).collect();
        let got = round_trip(encoder, &steps, None);
        let rounded: Vec<f32> = got.iter().map(|x| x.round()).collect();
        assert_eq!(rounded, steps, "{format}");
    }
}

#[test]
fn relative_error_is_bounded_for_one_sign_outliers_and_scales() {
    let check = |what: &str, values: &[f32], max_relative: f64| {
        let size = error(values, &[0.0].repeat(values.len()), &[1.0]);
        for encoder in encoders() {
            let relative = error(values, &round_trip(encoder, values, None), &[1.0]) / size;
            assert!(relative <= max_relative, "{what} {}: {relative}", encoder.format());
        }
    };
    let wave = |i: usize| (i as f32 * 0.7).sin();
    let values = |value: &dyn Fn(usize) -> f32| (0..512).map(value).collect::<Vec<f32>>();
    check("wave", &values(&wave), 0.07);
    check("positive", &values(&|i| 1.5 + wave(i)), 0.07);
    check("negative", &values(&|i| -1.5 - wave(i)), 0.07);
    check("constant", &values(&|_| -0.3), 0.01);
    check("one value", &values(&|i| if i % 256 == 77 { 3.0 } else { 0.0 }), 0.01);
    check("large", &values(&|i| 3e4 * wave(i)), 0.07);
    check("small", &values(&|i| 3e-3 * wave(i)), 0.07);
}

#[test]
fn non_finite_values_do_not_panic() {
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
fn importance_lowers_the_weighted_error() {
    let values: Vec<f32> = (0..512).map(|i| (i as f32 * 1.3).sin()).collect();
    let importance: Vec<f32> = (0..512).map(|i| if i % 4 == 0 { 100.0 } else { 1.0 }).collect();
    for encoder in encoders().filter(|encoder| encoder.format().block_values() > 1) {
        let plain = error(&values, &round_trip(encoder, &values, None), &importance);
        let weighted =
            error(&values, &round_trip(encoder, &values, Some(&importance)), &importance);
        if encoder.format() == Format::Q8_0 {
            assert_eq!(weighted, plain, "Q8_0 ignores importance");
        } else {
            assert!(weighted < plain * 0.95, "{}: {weighted} of {plain}", encoder.format());
        }
    }
}

#[test]
fn other_formats_have_no_encoder() {
    let with_encoder: Vec<&str> = encoders().map(|encoder| encoder.format().name()).collect();
    assert_eq!(
        with_encoder,
        ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
    );
}
