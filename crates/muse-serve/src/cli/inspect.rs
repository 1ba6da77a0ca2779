//! `muse inspect`: what a checkpoint holds, what is missing or unusual, and the memory it takes.

use std::process::ExitCode;

use anyhow::Result;
use muse_core::contract::{DrafterSpec, GenerationDefaults, TextSpec, VisionSpec};
use muse_serve::runtime::{LoadOptions, MemoryPlan, estimate_memory};
use muse_weights::{Report, TokenizerSummary};
use serde_json::{Value, json};

use super::args::InspectCommand;
use super::terminal::Screen;

/// Lengths in positions for which memory is estimated, beside the longest of the checkpoint.
const CONTEXTS: [u32; 2] = [4096, 32_768];

pub(super) fn run(command: &InspectCommand) -> Result<ExitCode> {
    let report = muse_weights::inspect(&command.path)?;
    let memory = memory(&report, command);
    let text = match command.json {
        true => format!("{}\n", json(&report, &memory)),
        false => format!("{report}{}\n", lines(&memory)),
    };
    Screen::new().print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The memory that one sequence takes at some lengths; nothing for what cannot run alone.
fn memory(report: &Report, command: &InspectCommand) -> Vec<MemoryPlan> {
    let text = report.spec.as_ref().and_then(|spec| spec.text.as_ref());
    let Some(text) = text.filter(|_| report.problem.is_none()) else { return Vec::new() };
    let max = u32::try_from(text.max_positions).unwrap_or(u32::MAX);
    let contexts = CONTEXTS.into_iter().filter(|&context| context < max).chain([max]);
    let estimate = |context| {
        let options = LoadOptions {
            model: Some(command.path.clone()),
            context: Some(context),
            parallel: Some(1),
            threads: Some(1),
            ..LoadOptions::default()
        };
        // A build without any backend cannot tell.
        estimate_memory(&options).ok()
    };
    contexts.filter_map(estimate).collect()
}

fn lines(memory: &[MemoryPlan]) -> String {
    let gb = |bytes: u64| bytes as f64 / 1e9;
    let line = |plan: &MemoryPlan| {
        let kv = plan.full_kv + plan.window_kv;
        format!(
            "memory        {:.3} GB for {} positions: weights {:.3}, K/V cache as {} {:.3}, \
             scratch {:.3}\n",
            gb(plan.total()),
            plan.context,
            gb(plan.weights),
            kv_type(plan),
            gb(kv),
            gb(plan.scratch),
        )
    };
    memory.iter().map(line).collect()
}

fn kv_type(plan: &MemoryPlan) -> String {
    format!("{:?}", plan.kv).to_lowercase()
}

/// The report as one object. Sizes are in bytes; what is absent is null.
fn json(report: &Report, memory: &[MemoryPlan]) -> Value {
    let spec = report.spec.clone().unwrap_or_default();
    let formats: Vec<Value> = report
        .formats
        .iter()
        .map(|share| {
            json!({
                "format": share.format,
                "tensors": share.tensors,
                "parameters": share.parameters,
                "bytes": share.bytes,
            })
        })
        .collect();
    let memory: Vec<Value> = memory
        .iter()
        .map(|plan| {
            json!({
                "context": plan.context,
                "sequences": plan.parallel,
                "kv_type": kv_type(plan),
                "weights": plan.weights,
                "kv_cache": plan.full_kv + plan.window_kv,
                "scratch": plan.scratch,
                "total": plan.total(),
            })
        })
        .collect();
    json!({
        "path": report.path,
        "container": report.container,
        "architecture": report.architecture,
        "parameters": report.parameters(),
        "bytes": report.bytes(),
        "formats": formats,
        "text": spec.text.as_ref().map(text),
        "drafter": spec.drafter.as_ref().map(drafter),
        "vision": spec.vision.as_ref().map(vision),
        "tokenizer": report.tokenizer.as_ref().map(tokenizer),
        "generation": report.generation.as_ref().map(generation),
        "memory": memory,
        "notes": report.notes,
        "problem": report.problem.as_ref().map(ToString::to_string),
    })
}

fn text(spec: &TextSpec) -> Value {
    let sliding = spec.layers.iter().filter(|layer| layer.window.is_some()).count();
    json!({
        "layers": spec.layers.len(),
        "sliding_layers": sliding,
        "window": spec.layers.iter().find_map(|layer| layer.window),
        "hidden_size": spec.hidden,
        "feed_forward_size": spec.ffn,
        "heads": spec.heads,
        "kv_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "vocabulary": spec.vocab,
        "max_positions": spec.max_positions,
    })
}

fn drafter(spec: &DrafterSpec) -> Value {
    json!({
        "layers": spec.layers,
        "hidden_size": spec.hidden,
        "feed_forward_size": spec.ffn,
        "heads": spec.heads,
        "kv_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "draft_block": spec.draft_block,
        "mask_token": spec.mask_token,
        "target_layers": spec.target_layers,
    })
}

fn vision(spec: &VisionSpec) -> Value {
    json!({
        "layers": spec.full_layers.len(),
        "hidden_size": spec.hidden,
        "feed_forward_size": spec.ffn,
        "heads": spec.heads,
        "patch_size": spec.patch,
        "merge_size": spec.merge,
        "projector_size": spec.projector,
        "out_size": spec.out,
    })
}

fn tokenizer(summary: &TokenizerSummary) -> Value {
    let special: serde_json::Map<String, Value> =
        summary.special.iter().map(|&(role, id)| (role.to_owned(), id.into())).collect();
    json!({
        "kind": summary.kind,
        "tokens": summary.tokens,
        "merges": summary.merges,
        "special_tokens": special,
        "chat_template_bytes": summary.chat_template,
    })
}

fn generation(defaults: &GenerationDefaults) -> Value {
    // 0.95 as f32 is another number as f64: its digits are what the file says.
    let number = |value: Option<f32>| value.and_then(|value| value.to_string().parse::<f64>().ok());
    json!({
        "stop": defaults.stop,
        "temperature": number(defaults.temperature),
        "top_k": defaults.top_k,
        "top_p": number(defaults.top_p),
        "min_p": number(defaults.min_p),
        "repetition_penalty": number(defaults.repetition_penalty),
    })
}
