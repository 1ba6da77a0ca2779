//! `muse quantize`: writes a checkpoint as a GGUF file in another format, and prints the error of
//! each tensor.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::thread::available_parallelism;

use anyhow::{Context, Result, bail};
use muse_core::contract::WeightSource;
use muse_core::quant::Format;
use muse_weights::{
    Checkpoint, Imatrix, ModelKind, QuantizeOptions, QuantizeProgress, QuantizedTensor, quantize,
};

use super::args::QuantizeCommand;
use super::terminal::{Progress, Screen};

pub(super) fn run(command: &QuantizeCommand) -> Result<ExitCode> {
    let checkpoint = Checkpoint::open(&command.input)?;
    let kind = kind(&checkpoint, command)?;
    let imatrix = command.imatrix.as_deref().map(Imatrix::open).transpose()?;
    let vocabulary = command.vocabulary.as_deref().map(Checkpoint::open).transpose()?;
    let threads = command.threads.or_else(|| available_parallelism().ok());
    let options = QuantizeOptions {
        kind,
        format: command.body,
        lm_head: command.keep_head.unwrap_or_else(|| default_lm_head(command.body)),
        imatrix: imatrix.as_ref(),
        vocabulary: vocabulary.as_ref(),
        threads: threads.map_or(1, NonZeroUsize::get),
    };
    let (mut screen, mut progress) = (Screen::new(), Progress::new());
    let (mut printed, mut bits, mut values) = (Ok(()), 0, 0);
    let bytes = quantize(&checkpoint, &command.output, &options, &mut |step| match step {
        QuantizeProgress::Bytes { done, total } => progress.show("quantizing", done, total),
        QuantizeProgress::Tensor(written) => {
            progress.clear();
            bits += 8 * written.tensor.bytes();
            values += written.tensor.shape.iter().product::<usize>();
            if printed.is_ok() {
                printed = screen.say(&line(written, options.imatrix.is_some()));
            }
        }
    })?;
    progress.clear();
    // The file is written even when the reader of the list has closed the pipe.
    printed?;
    let bits = bits as f64 / values as f64;
    screen.say(&format!(
        "{}: {:.3} GB, {bits:.2} bits a weight\n",
        command.output.display(),
        bytes as f64 / 1e9
    ))?;
    if kind == ModelKind::Text && checkpoint.spec().vision.is_some() {
        eprintln!("note: the vision tower is a file of its own: --vision writes it");
    }
    if kind == ModelKind::Drafter && checkpoint.vocabulary()?.is_none() && vocabulary.is_none() {
        eprintln!("note: no tokenizer; llama.cpp needs one: --vocabulary PATH of the target");
    }
    Ok(ExitCode::SUCCESS)
}

/// Which model of the checkpoint to write.
fn kind(checkpoint: &Checkpoint, command: &QuantizeCommand) -> Result<ModelKind> {
    let kinds = ModelKind::of(checkpoint.spec());
    let path = command.input.display();
    if command.vision {
        if !kinds.contains(&ModelKind::Vision) {
            bail!("{path} has no vision tower; leave out --vision");
        }
        return Ok(ModelKind::Vision);
    }
    let kind = *kinds.first().with_context(|| format!("{path} holds no model"))?;
    Ok(kind)
}

/// The default format of the LM head: errors there change logits directly, so it has more bits than
/// matrices of few bits.
fn default_lm_head(body: Format) -> Format {
    match body {
        Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 | Format::Q4K | Format::Q5K => {
            Format::Q6K
        }
        _ => body,
    }
}

/// One line of the list of tensors.
fn line(written: &QuantizedTensor, imatrix: bool) -> String {
    let QuantizedTensor { tensor, requested, from, error, weighted } = written;
    let shape: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
    let formats = format!("{from} -> {}", tensor.format);
    let error = if *error == 0.0 { "exact".to_owned() } else { format!("error {error:.3e}") };
    let mut line = format!("{:<34} {:>14}  {formats:<13}  {error}", tensor.name, shape.join(" x "));
    if let Some(requested) = requested {
        let width = tensor.shape.last().copied().unwrap_or_default();
        line += &format!("  (rows of {width} are no multiple of the quant block of {requested})");
    }
    if imatrix && !weighted && tensor.format.block_values() > 1 {
        line += "  (not in the importance matrix)";
    }
    line.push('\n');
    line
}

/// The format that a type on the command line names.
pub(super) fn format(word: &str) -> Result<Format, String> {
    let written = || Format::ALL.iter().copied().filter(|format| format.encoder().is_some());
    let found = written().find(|format| format.name().eq_ignore_ascii_case(word));
    found.ok_or_else(|| {
        let names: Vec<String> = written().map(|format| format.name().to_lowercase()).collect();
        let known = Format::ALL.iter().any(|format| format.name().eq_ignore_ascii_case(word));
        let what = if known { "a type that is only read" } else { "no type" };
        format!("{what}; types that are written: {}", names.join(", "))
    })
}
