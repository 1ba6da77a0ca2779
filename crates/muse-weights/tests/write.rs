//! Checkpoints written in other formats and read back, and what `quantize` refuses.

use std::fs;
use std::path::{Path, PathBuf};

use muse_core::contract::WeightSource;
use muse_core::quant::Format;
use muse_testkit::{golden_dir, nano_dir};
use muse_weights::{
    Checkpoint, Error, GgufKeys, GgufTensor, GgufWriter, Imatrix, ModelKind, QuantizeOptions,
    QuantizeProgress, QuantizedTensor, quantize,
};

fn open(path: &Path) -> Checkpoint {
    Checkpoint::open(path).unwrap_or_else(|error| panic!("{error}"))
}

fn nano() -> Checkpoint {
    open(&nano_dir().join("target"))
}

fn options(format: Format) -> QuantizeOptions<'static> {
    QuantizeOptions {
        kind: ModelKind::Text,
        format,
        lm_head: format,
        imatrix: None,
        vocabulary: None,
        threads: 2,
    }
}

/// A folder for the one file that a test writes.
struct Out(tempfile::TempDir);

impl Out {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("model.gguf")
    }

    fn files(&self) -> usize {
        fs::read_dir(self.0.path()).expect("the folder").count()
    }

    fn write(
        &self,
        checkpoint: &Checkpoint,
        options: &QuantizeOptions<'_>,
    ) -> (Checkpoint, Vec<QuantizedTensor>) {
        let mut tensors = Vec::new();
        let mut progress = (0, 0);
        let bytes = quantize(checkpoint, &self.path(), options, &mut |step| match step {
            QuantizeProgress::Bytes { done, total } => progress = (done, total),
            QuantizeProgress::Tensor(written) => tensors.push(written.clone()),
        });
        let bytes = bytes.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(self.files(), 1);
        assert_eq!(fs::metadata(self.path()).expect("the file").len(), bytes);
        assert_eq!(progress.0, progress.1);
        (open(&self.path()), tensors)
    }

    fn refused(&self, checkpoint: &Checkpoint, options: &QuantizeOptions<'_>, wants: &[&str]) {
        let before = self.files();
        let error = quantize(checkpoint, &self.path(), options, &mut |_| {}).expect_err("refused");
        for want in wants {
            assert!(error.to_string().contains(want), "`{error}` does not say `{want}`");
        }
        assert_eq!(self.files(), before, "no file is left behind");
    }
}

#[test]
fn nano_is_read_back_in_every_format() {
    let nano = nano();
    for format in Format::ALL.iter().copied().filter(|format| format.encoder().is_some()) {
        let out = Out::new();
        let (written, tensors) = out.write(&nano, &options(format));
        assert_eq!(written.spec().text, nano.spec().text, "{format}");
        assert_eq!(tensors.len(), written.tensors().len(), "{format}");
        for tensor in &tensors {
            let name = tensor.tensor.name.as_str();
            let (a, b) = (nano.weight(name).expect("source"), written.weight(name).expect("ours"));
            let matrix = a.rows > 1;
            assert_eq!(b.format, if matrix { format } else { Format::F32 }, "{format} {name}");
            let (a, b) = (a.to_f32(), b.to_f32());
            let square =
                |values: &mut dyn Iterator<Item = f64>| -> f64 { values.map(|x| x * x).sum() };
            let miss = square(&mut a.iter().zip(&b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
            let relative = (miss / square(&mut a.iter().map(|a| f64::from(*a)))).sqrt();
            assert!((relative - tensor.error).abs() <= 1e-9, "{format} {name}: {relative}");
            let max = match format {
                Format::F32 | Format::Bf16 => 0.0,
                Format::F16 => 1e-4,
                Format::Q8_0 => 0.01,
                Format::Q6K => 0.03,
                Format::Q5K | Format::Q5_0 | Format::Q5_1 => 0.06,
                _ => 0.13,
            };
            assert!(relative <= if matrix { max } else { 0.0 }, "{format} {name}: {relative}");
        }
    }
}

#[test]
fn errors_on_nano_are_at_most_those_of_llama_cpp() {
    let path = golden_dir().join("quantize/errors.json");
    let text = fs::read_to_string(path).expect("golden errors");
    let golden: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let (nano, mut checked) = (nano(), 0);
    for (name, peers) in golden.as_object().expect("errors by tensor") {
        let Ok(weight) = nano.weight(name) else { continue };
        for (kind, peer) in peers.as_object().expect("errors by format") {
            let format = Format::ALL.iter().find(|format| format.name() == kind);
            let encoder = format.and_then(|format| format.encoder()).expect("an encoder");
            let values = weight.to_f32();
            let mut bytes = vec![0; encoder.format().bytes_for(values.len())];
            encoder.encode(&values, None, &mut bytes);
            let mut got = vec![0.0; values.len()];
            encoder.format().decode(&bytes, &mut got);
            let misses = values.iter().zip(&got).map(|(x, y)| f64::from(*x) - f64::from(*y));
            let error = (misses.map(|miss| miss * miss).sum::<f64>() / values.len() as f64).sqrt();
            let peer = peer.as_f64().expect("a number");
            // The sum of squares is taken in another order.
            assert!(error <= peer * (1.0 + 1e-9), "{name} {kind}: {error:e}, llama.cpp {peer:e}");
            checked += 1;
        }
    }
    assert_eq!(checked, 48);
}

#[test]
fn a_file_quantized_to_its_own_format_is_copied() {
    let path = golden_dir().join("nano/gguf/target.q8_0.gguf");
    let (source, out) = (open(&path), Out::new());
    let (written, tensors) = out.write(&source, &options(Format::Q8_0));
    assert!(tensors.iter().all(|tensor| tensor.error == 0.0));
    for info in source.tensors() {
        let (a, b) = (source.weight(&info.name), written.weight(&info.name));
        assert_eq!(a.expect("source").bytes, b.expect("ours").bytes, "{}", info.name);
    }
    let vocabulary = |checkpoint: &Checkpoint| format!("{:?}", checkpoint.vocabulary().unwrap());
    assert_eq!(vocabulary(&source), vocabulary(&written));
}

#[test]
fn the_lm_head_has_its_own_format() {
    let out = Out::new();
    let (written, _) =
        out.write(&nano(), &QuantizeOptions { lm_head: Format::Q6K, ..options(Format::Q4_0) });
    let format = |name: &str| written.weight(name).expect("a tensor").format;
    assert_eq!(format("output.weight"), Format::Q6K);
    assert_eq!(format("token_embd.weight"), Format::Q4_0);
    assert_eq!(format("output_norm.weight"), Format::F32);
}

#[test]
fn narrow_rows_fall_back_to_formats_with_smaller_blocks() {
    let tiny = open(&golden_dir().join("tiny/target"));
    for (requested, got) in
        [(Format::Q4K, Format::Q5_0), (Format::Q5K, Format::Q5_1), (Format::Q6K, Format::Q8_0)]
    {
        let (_, tensors) = Out::new().write(&tiny, &options(requested));
        let of = |name: &str| {
            tensors.iter().find(|written| written.tensor.name == name).expect("a tensor")
        };
        let (narrow, wide) = (of("blk.0.ffn_up.weight"), of("blk.0.ffn_down.weight"));
        assert_eq!((narrow.tensor.format, narrow.requested), (got, Some(requested)));
        assert_eq!((wide.tensor.format, wide.requested), (requested, None));
    }
}

#[test]
fn files_are_not_overwritten() {
    let out = Out::new();
    fs::write(out.path(), "mine").expect("a file");
    out.refused(&nano(), &options(Format::Q8_0), &["model.gguf", "never overwritten"]);
    assert_eq!(fs::read(out.path()).expect("the file"), b"mine");
}

#[test]
fn quantized_files_are_not_quantized_again() {
    let (coarse, out) = (Out::new(), Out::new());
    let (q4, _) = coarse.write(&nano(), &options(Format::Q4K));
    out.refused(&q4, &options(Format::Q5K), &["token_embd.weight", "Q4_K", "errors of both"]);
    let (wide, tensors) = out.write(&q4, &options(Format::F32));
    assert!(tensors.iter().all(|tensor| tensor.error == 0.0));
    let values = |of: &Checkpoint| of.weight("blk.2.attn_q.weight").expect("a tensor").to_f32();
    assert_eq!(values(&wide), values(&q4));
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let (source, out) = (Out::new(), Out::new());
    source.write(&nano(), &options(Format::F32));
    let bytes = fs::read(source.path()).expect("the file");
    let edited = |value: f32| {
        let mut bytes = bytes.clone();
        // The file ends with a matrix.
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&value.to_le_bytes());
        let path = source.0.path().join("edited.gguf");
        fs::write(&path, bytes).expect("the file");
        open(&path)
    };
    let last = "blk.7.ffn_down.weight";
    out.refused(&edited(f32::NAN), &options(Format::Q8_0), &[last, "not finite in row 255"]);
    out.refused(&edited(7e4), &options(Format::F16), &[last, "7e4 in row 255", "F16", "BF16"]);
    out.refused(&edited(1e9), &options(Format::Q4K), &[last, "1e9", "Q4_K"]);
}

#[test]
fn formats_without_an_encoder_are_refused() {
    Out::new().refused(&nano(), &options(Format::Iq2Xxs), &["token_embd.weight", "not IQ2_XXS"]);
}

/// Writes an importance matrix for one tensor.
fn imatrix(path: &Path, tensor: &str, columns: &[f32], count: f32) {
    let vector = |name: &str, length: usize| GgufTensor {
        name: format!("{tensor}.{name}"),
        format: Format::F32,
        shape: vec![1, length],
    };
    let mut keys = GgufKeys::new();
    keys.set("general.type", "imatrix");
    let tensors = [vector("in_sum2", columns.len()), vector("counts", 1)];
    let mut writer = GgufWriter::create(path, &keys, &tensors).expect("a file");
    columns.iter().for_each(|x| writer.write(&x.to_le_bytes()).expect("written"));
    writer.write(&count.to_le_bytes()).expect("written");
    writer.finish().expect("finished");
}

#[test]
fn importances_lower_the_weighted_error() {
    let name = "blk.0.ffn_up.weight";
    let columns: Vec<f32> = (0..256).map(|i| if i % 8 == 0 { 500.0 } else { 5.0 }).collect();
    let (folder, nano) = (Out::new(), nano());
    imatrix(&folder.path(), name, &columns, 5.0);
    let imatrix = Imatrix::open(&folder.path()).expect("an importance matrix");
    let with_imatrix = QuantizeOptions { imatrix: Some(&imatrix), ..options(Format::Q4K) };
    let (plain_out, weighted_out) = (Out::new(), Out::new());
    let (plain, _) = plain_out.write(&nano, &options(Format::Q4K));
    let (weighted_model, tensors) = weighted_out.write(&nano, &with_imatrix);
    let weighted: Vec<&str> = tensors
        .iter()
        .filter(|tensor| tensor.weighted)
        .map(|tensor| tensor.tensor.name.as_str())
        .collect();
    assert_eq!(weighted, [name]);
    let source = nano.weight(name).expect("source").to_f32();
    let error = |of: &Checkpoint| -> f64 {
        let values = of.weight(name).expect("a tensor").to_f32();
        let misses = source.iter().zip(&values).zip(columns.iter().cycle());
        misses.map(|((x, y), w)| f64::from(w * (x - y) * (x - y))).sum()
    };
    assert!(
        error(&weighted_model) < 0.8 * error(&plain),
        "{} of {}",
        error(&weighted_model),
        error(&plain)
    );
    let other = |name: &str| {
        (plain.weight(name).unwrap().bytes, weighted_model.weight(name).unwrap().bytes)
    };
    let (a, b) = other("blk.1.ffn_up.weight");
    assert_eq!(a, b);
}

#[test]
fn broken_importances_are_refused() {
    let check = |columns: &[f32], count: f32, wants: &[&str]| {
        let folder = Out::new();
        imatrix(&folder.path(), "blk.0.ffn_up.weight", columns, count);
        let error = match Imatrix::open(&folder.path()) {
            Ok(imatrix) => {
                let options = QuantizeOptions { imatrix: Some(&imatrix), ..options(Format::Q4K) };
                let out = Out::new();
                quantize(&nano(), &out.path(), &options, &mut |_| {}).expect_err("refused")
            }
            Err(error) => error,
        };
        for want in wants {
            assert!(error.to_string().contains(want), "`{error}` does not say `{want}`");
        }
    };
    check(&[1.0; 128], 1.0, &["blk.0.ffn_up.weight.in_sum2", "128 columns", "256"]);
    check(&[-1.0; 256], 1.0, &["in_sum2", "-1", "sums of squares"]);
    check(&[1.0; 256], f32::NAN, &["blk.0.ffn_up.weight.counts"]);
    let folder = Out::new();
    fs::write(folder.path(), [1, 0, 0, 0, 5, 0, 0, 0]).expect("a file");
    let error = Imatrix::open(&folder.path()).expect_err("refused");
    assert!(error.to_string().contains("llama-imatrix"), "{error}");
    let path = golden_dir().join("nano/gguf/target.bf16.gguf");
    let error = Imatrix::open(&path).expect_err("refused");
    assert!(error.to_string().contains("none named `*.in_sum2`"), "{error}");
}

#[test]
fn an_unfinished_file_is_removed() {
    let out = Out::new();
    let tensor = GgufTensor { name: "a".to_owned(), format: Format::F32, shape: vec![2] };
    let mut writer = GgufWriter::create(&out.path(), &GgufKeys::new(), &[tensor]).expect("a file");
    writer.write(&[0; 4]).expect("written");
    assert_eq!(out.files(), 1);
    assert!(!out.path().exists());
    drop(writer);
    assert_eq!(out.files(), 0);
}

#[test]
fn a_missing_output_folder_is_an_error() {
    let out = Out::new().0.path().join("nowhere/model.gguf");
    let error = quantize(&nano(), &out, &options(Format::Q8_0), &mut |_| {}).expect_err("refused");
    assert!(matches!(error, Error::Write { .. }), "{error}");
    assert!(error.to_string().contains("/nowhere` does not exist"), "{error}");
}
