//! `muse quantize`: writes a checkpoint as a GGUF file in another format, and prints the error of
//! each tensor.

use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use muse_core::contract::WeightSource;
use muse_core::quant::Format;
use muse_weights::{
    Checkpoint, Imatrix, ModelKind, QuantizeOptions, QuantizeProgress, QuantizedTensor,
    abandoned_files, quantize,
};

use super::args::QuantizeCommand;
use super::interrupt;
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
    note_abandoned_files(&command.output);
    interrupt::remove_incomplete_files()?;
    let (mut screen, mut progress) = (Screen::new(), Progress::new());
    let (mut printed, mut bits, mut values) = (Ok(()), 0, 0);
    let start = Instant::now();
    let bytes = quantize(&checkpoint, &command.output, &options, &mut |step| match step {
        QuantizeProgress::Bytes { done, total } => {
            progress.show_line(progress_line(done, total, start.elapsed()));
        }
        QuantizeProgress::Tensor(written) => {
            progress.clear();
            bits += 8 * written.tensor.bytes();
            values += written.tensor.shape.iter().product::<usize>();
            if printed.is_ok() {
                printed = screen.print(&line(written, options.imatrix.is_some()));
            }
        }
    })?;
    progress.clear();
    // The file is written even when the reader of the list has closed the pipe.
    printed?;
    let bits = bits as f64 / values as f64;
    screen.print(&format!(
        "{}: {:.3} GB, {bits:.2} bits per weight (error: RMS of the differences in % of the \
         weights' RMS)\n",
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

/// Names what killed processes left in the folder of `output`: files of the size of models.
fn note_abandoned_files(output: &Path) {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
    for (file, bytes) in abandoned_files(folder.unwrap_or(Path::new("."))) {
        let (name, size) = (file.display(), size(bytes));
        let is_own = file.file_stem() == output.file_name();
        let then = if is_own { "it is written over" } else { "remove it if you do not need it" };
        eprintln!("note: {name} ({size}) was left incomplete by a process that was killed; {then}");
    }
}

/// A bar, the share, the sizes, the rate and the time that is left.
fn progress_line(done: u64, total: u64, elapsed: Duration) -> String {
    const WIDTH: u64 = 24;
    let filled = (done * WIDTH).checked_div(total).unwrap_or(WIDTH) as usize;
    let bar = format!("{:-<1$}", "#".repeat(filled), WIDTH as usize);
    let percent = (done * 100).checked_div(total).unwrap_or(100);
    let mut line = format!("quantizing [{bar}] {percent:>3} %, {} of {}", size(done), size(total));
    let rate = done as f64 / elapsed.as_secs_f64();
    if rate.is_normal() {
        let left = ((total - done) as f64 / rate).ceil() as u64;
        let (hours, minutes, seconds) = (left / 3600, left / 60 % 60, left % 60);
        let left = match hours {
            0 => format!("{minutes}:{seconds:02}"),
            _ => format!("{hours}:{minutes:02}:{seconds:02}"),
        };
        line += &format!(", {}/s, {left} left", size(rate as u64));
    }
    line
}

/// Bytes in the unit that suits them.
fn size(bytes: u64) -> String {
    match bytes as f64 / 1e6 {
        mb @ ..1000.0 => format!("{mb:.1} MB"),
        mb => format!("{:.2} GB", mb / 1e3),
    }
}

/// A number above 0 with three digits that count.
fn three_digits(number: f64) -> String {
    let decimals = (2.0 - number.log10().floor()).clamp(0.0, 12.0);
    format!("{number:.0$}", decimals as usize)
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
    let error = match *error {
        0.0 => "exact".to_owned(),
        error => format!("error {} %", three_digits(100.0 * error)),
    };
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
        let what = match nearest(word, &names) {
            _ if known => "a type that is only read".to_owned(),
            Some(name) => format!("no type; {name} is what comes nearest"),
            None => "no type".to_owned(),
        };
        format!("{what}; types that are written: {}", names.join(", "))
    })
}

/// The type among `names` that a name of llama.cpp's mixtures, such as Q4_K_M, or a short form of a
/// type means.
fn nearest<'a>(word: &str, names: &'a [String]) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_").replace("fp", "f");
    let word = word.strip_prefix("ud_").unwrap_or(&word);
    if word.is_empty() {
        return None;
    }
    let stem = ["_xs", "_s", "_m", "_l", "_xl"].iter().find_map(|end| word.strip_suffix(end));
    let bare = |text: &str| text.replace('_', "");
    let of_bits = || names.iter().find(|name| name.starts_with(word) && name.ends_with("_k"));
    let starting = || names.iter().find(|name| name.starts_with(word));
    let found = names
        .iter()
        .find(|name| stem == Some(name) || bare(name) == bare(stem.unwrap_or(word)))
        .or_else(of_bits)
        .or_else(starting);
    found.map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_llama_cpp_are_understood_in_errors() {
        for (word, name) in [
            ("Q4_K_M", "q4_k"),
            ("UD-Q5_K_XL", "q5_k"),
            ("q6k", "q6_k"),
            ("Q8", "q8_0"),
            ("q4", "q4_k"),
            ("fp16", "f16"),
            ("IQ4_XS", ""),
            ("Q3_K_M", ""),
            ("", ""),
        ] {
            let error = format(word).expect_err(word);
            let hint = format!("{name} is what comes nearest");
            assert_eq!(error.contains(&hint), !name.is_empty(), "{word}: {error}");
            assert_eq!(error.contains("nearest"), !name.is_empty(), "{word}: {error}");
            assert!(error.contains("q8_0, "), "{error}");
        }
        assert_eq!(format("q8_0"), Ok(Format::Q8_0));
    }

    #[test]
    fn progress_tells_rate_and_time() {
        let line = |done, total, seconds| progress_line(done, total, Duration::from_secs(seconds));
        assert_eq!(
            line(3_000_000_000, 12_000_000_000, 20),
            "quantizing [######------------------]  25 %, 3.00 GB of 12.00 GB, 150.0 MB/s, 1:00 left"
        );
        assert!(line(1_000_000, 8_000_000_000, 10).ends_with("0.1 MB/s, 22:13:10 left"));
        assert!(line(0, 12_000_000, 1).ends_with("  0 %, 0.0 MB of 12.0 MB"));
        assert!(line(1, 1, 0).ends_with("100 %, 0.0 MB of 0.0 MB"));
        assert!(line(0, 0, 1).contains("100 %"));
    }

    #[test]
    fn errors_have_three_digits() {
        for (number, text) in
            [(0.000_293_4, "0.000293"), (0.5234, "0.523"), (5.236, "5.24"), (12.345, "12.3")]
        {
            assert_eq!(three_digits(number), text);
        }
    }
}
