//! Prints a report as text.

use std::fmt;

use muse_core::contract::{DrafterSpec, GenerationDefaults, TextSpec, VisionSpec};

use super::{FormatShare, Report, TokenizerSummary};
use crate::error::escaped;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.path)?;
        writeln!(f, "container     {}", self.container)?;
        let unnamed = if self.architecture.is_empty() { "not named" } else { "" };
        writeln!(f, "architecture  {}{unnamed}", escaped(&self.architecture))?;
        if let Some(spec) = &self.spec {
            spec.text.iter().try_for_each(|text| write_text(f, text))?;
            spec.drafter.iter().try_for_each(|drafter| write_drafter(f, drafter))?;
            spec.vision.iter().try_for_each(|vision| write_vision(f, vision))?;
        }
        writeln!(
            f,
            "weights       {} values, {} bytes",
            grouped(self.parameters()),
            grouped(self.bytes())
        )?;
        for share in &self.formats {
            let FormatShare { format, tensors, parameters, bytes } = share;
            let (values, bytes) = (grouped(*parameters), grouped(*bytes));
            writeln!(
                f,
                "  {format:<8} {tensors:>6} tensors {values:>15} values {bytes:>15} bytes"
            )?;
        }
        if let Some(tokenizer) = &self.tokenizer {
            write_tokenizer(f, tokenizer)?;
        }
        if let Some(generation) = &self.generation {
            write_generation(f, generation)?;
        }
        for note in &self.notes {
            writeln!(f, "note          {note}")?;
        }
        if let Some(problem) = &self.problem {
            writeln!(f, "cannot run    {problem}")?;
        }
        Ok(())
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, spec: &TextSpec) -> fmt::Result {
    let sliding = spec.layers.iter().filter_map(|layer| layer.window);
    let window = sliding.clone().next().map_or(String::new(), |window| format!(" of {window}"));
    let sliding = sliding.count();
    writeln!(
        f,
        "text          {} layers ({} full, {sliding} sliding{window}), hidden {}, feed-forward {}, \
         heads {} / {} of {}, vocabulary {}, positions {}",
        spec.layers.len(),
        spec.layers.len() - sliding,
        spec.hidden,
        spec.ffn,
        spec.heads,
        spec.kv_heads,
        spec.head_dim,
        spec.vocab,
        spec.max_positions,
    )?;
    let softcap = spec.logit_softcap.map_or("none".to_owned(), |softcap| softcap.to_string());
    writeln!(
        f,
        "              norm eps {:e} / {:e}, rope theta {}, logit scale {}, softcap {softcap}",
        spec.norm_eps, spec.post_norm_eps, spec.rope_theta, spec.logit_scale,
    )
}

fn write_drafter(f: &mut fmt::Formatter<'_>, spec: &DrafterSpec) -> fmt::Result {
    writeln!(
        f,
        "drafter       {} layers, hidden {}, feed-forward {}, heads {} / {} of {}, block {}, \
         reach {}, mask token {}, target layers {:?}",
        spec.layers,
        spec.hidden,
        spec.ffn,
        spec.heads,
        spec.kv_heads,
        spec.head_dim,
        spec.draft_block,
        spec.reach,
        spec.mask_token,
        spec.target_layers,
    )
}

fn write_vision(f: &mut fmt::Formatter<'_>, spec: &VisionSpec) -> fmt::Result {
    let full = spec.full_layers.iter().filter(|full| **full).count();
    writeln!(
        f,
        "vision        {} layers ({full} full), hidden {}, feed-forward {}, heads {}, patch {}, \
         merge {}, table {} x {}, projector {} to {}",
        spec.full_layers.len(),
        spec.hidden,
        spec.ffn,
        spec.heads,
        spec.patch,
        spec.merge,
        spec.table.0,
        spec.table.1,
        spec.projector,
        spec.out,
    )
}

fn write_tokenizer(f: &mut fmt::Formatter<'_>, facts: &TokenizerSummary) -> fmt::Result {
    let kind = escaped(&facts.kind);
    write!(f, "tokenizer     {kind}, {} tokens, {} merges", facts.tokens, facts.merges)?;
    for (role, id) in &facts.special {
        write!(f, ", {role} {id}")?;
    }
    match facts.chat_template {
        Some(bytes) => writeln!(f, ", chat template of {bytes} bytes"),
        None => writeln!(f, ", no chat template"),
    }
}

fn write_generation(f: &mut fmt::Formatter<'_>, defaults: &GenerationDefaults) -> fmt::Result {
    write!(f, "generation    stop {:?}", defaults.stop)?;
    for (name, value) in [
        ("temperature", defaults.temperature),
        ("top-p", defaults.top_p),
        ("min-p", defaults.min_p),
        ("repetition penalty", defaults.repetition_penalty),
        ("top-k", defaults.top_k.map(|k| k as f32)),
    ] {
        if let Some(value) = value {
            write!(f, ", {name} {value}")?;
        }
    }
    writeln!(f)
}

/// A number with commas between groups of three digits.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
