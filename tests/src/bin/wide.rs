//! `wide --layers N --type T [--head T] --out FILE`: a GGUF file of the published width with random
//! weights, to measure speed on.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use muse_core::quant::Format;
use muse_tests::wide;

const USAGE: &str = "use --layers N --type T [--head T] --out FILE";

fn main() -> anyhow::Result<()> {
    let (mut layers, mut body, mut head, mut out) = (None, None, Format::Q6K, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{flag} needs a value; {USAGE}"))?;
        match flag.as_str() {
            "--layers" => layers = Some(value.parse().context("--layers needs a number")?),
            "--type" => body = Some(format(&value)?),
            "--head" => head = format(&value)?,
            "--out" => out = Some(PathBuf::from(value)),
            _ => bail!("unknown flag {flag}; {USAGE}"),
        }
    }
    let layers: usize = layers.context(USAGE)?;
    ensure!(layers > 0, "a model has at least one layer");
    let (body, out) = (body.context(USAGE)?, out.context(USAGE)?);
    let bytes = wide::write(&wide::shape(layers), body, head, &out)?;
    println!("{}: {layers} layers, {body}, head {head}, {bytes} bytes", out.display());
    Ok(())
}

fn format(name: &str) -> anyhow::Result<Format> {
    let found = Format::ALL.iter().find(|format| format.name().eq_ignore_ascii_case(name));
    found.copied().with_context(|| {
        let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        format!("unknown type {name}; there are {}", names.join(", "))
    })
}
