//! Options and commands of llama.cpp, vLLM and Ollama that muse calls otherwise or does not need:
//! what to write instead. They are looked up only after the command line was refused.

use std::ffi::OsString;

use clap::Command;

/// What to do in place of an option.
enum Instead {
    /// A long option of muse.
    Use(&'static str),
    /// Why there is none.
    Note(&'static str),
}

use super::quantize;
use Instead::{Note, Use};

const OPTIONS: [(&[&str], Instead); 29] = [
    (&["--temp"], Use("temperature")),
    (&["--repeat-penalty", "--repetition_penalty"], Use("repetition-penalty")),
    (&["-s", "--rng-seed"], Use("seed")),
    (&["--ctx-size", "--max-model-len", "--num-ctx", "--n-ctx", "--max-seq-len"], Use("context")),
    (&["--n-predict", "--predict", "--max-new-tokens", "--num-predict", "--n"], Use("max-tokens")),
    (&["-np", "--max-num-seqs", "--n-parallel", "--num-parallel"], Use("parallel")),
    (&["--served-model-name"], Use("alias")),
    (&["-md", "--model-draft", "--spec-draft-model", "--speculative-config"], Use("draft")),
    (
        &["--draft-max", "--draft-n", "--spec-draft-n-max", "--num-speculative-tokens"],
        Use("max-draft"),
    ),
    (&["-ctk", "-ctv", "--cache-type-k", "--cache-type-v", "--kv-cache-dtype"], Use("kv")),
    (&["-mm"], Use("mmproj")),
    (&["--chat-template-file"], Use("chat-template")),
    (&["-sys", "--system-prompt", "--sys"], Use("system")),
    (&["--reasoning-effort", "--reasoning-budget", "--think"], Use("reasoning")),
    (&["--ignore-eos"], Use("ignore-stop")),
    (&["--uvicorn-log-level", "--log-verbosity", "--verbosity", "-v", "--verbose"], Use("log")),
    (&["--threads-http", "--threads-batch", "-tb"], Use("threads")),
    (&["-dev", "--device"], Use("backend")),
    (&["--samplers", "--sampling-seq"], Note("their order is fixed; set each by its own option")),
    (
        &["-p", "--prompt", "-f", "--file"],
        Note("give the message as an argument, or `-` and a file at standard input"),
    ),
    (
        &["-cnv", "--conversation", "-i", "--interactive", "-st", "--single-turn"],
        Note("without a message `muse chat` is a conversation, with one it answers and ends"),
    ),
    (
        &["-ngl", "--gpu-layers", "--n-gpu-layers", "--tensor-parallel-size", "-tp", "-sm", "-ts"],
        Note("the whole model runs on one device, that of --backend; leave it out"),
    ),
    (
        &["-fa", "--flash-attn", "--enable-prefix-caching", "--enable-chunked-prefill", "--jinja"],
        Note("it is always on; leave it out"),
    ),
    (
        &["-b", "-ub", "--batch-size", "--ubatch-size", "--max-num-batched-tokens"],
        Note("passes are sized by --context and --target-itl; leave it out"),
    ),
    (
        &["--no-mmap", "--mlock", "--numa", "--gpu-memory-utilization", "--swap-space"],
        Note("memory is planned from what is free, --context and --parallel; leave it out"),
    ),
    (
        &["--quantization", "--dtype", "--load-format", "--tokenizer", "--trust-remote-code"],
        Note("the checkpoint says it; leave it out, or write another file with `muse quantize`"),
    ),
    (
        &["-hf", "--hf-repo", "--hf-file", "--hf-token", "-mu", "--model-url", "--download-dir"],
        Note("muse downloads nothing: fetch the files and name them with --model"),
    ),
    (
        &[
            "--enable-auto-tool-choice",
            "--tool-call-parser",
            "--reasoning-parser",
            "--reasoning-format",
        ],
        Note("tool calls and reasoning are parsed as the model writes them; leave it out"),
    ),
    (
        &["--ssl-certfile", "--ssl-keyfile", "--ssl-cert-file", "--ssl-key-file"],
        Note("a proxy in front of muse adds TLS: see deploy/README.md"),
    ),
];

const COMMANDS: [(&[&str], &str); 7] = [
    (&["run", "cli", "ask"], "muse has `muse chat`"),
    (&["server", "start", "api_server"], "muse has `muse serve`"),
    (&["completion", "complete"], "muse has `muse generate`"),
    (&["show", "info", "gguf"], "muse has `muse inspect`"),
    (&["convert"], "muse has `muse quantize`, with --type bf16 for another container alone"),
    (
        &["list", "ls", "pull", "download", "rm", "create"],
        "muse downloads and keeps nothing: fetch a checkpoint and name its folder or file",
    ),
    (&["version"], "muse has `muse --version`"),
];

/// Advice about the first option or command of another tool among `args`, which `command` refused,
/// with the subcommand that it is about.
pub(super) fn advice(
    command: &Command,
    args: impl IntoIterator<Item = OsString>,
) -> Option<(Option<String>, String)> {
    let args: Vec<String> =
        args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let first = args.first()?;
    if first.starts_with('-') {
        let text = format!(
            "{first}: a command comes first, such as `muse chat {first}`, `muse serve` or `muse \
             generate`"
        );
        return Some((None, text));
    }
    let Some(subcommand) = command.find_subcommand(first) else {
        let (_, advice) = COMMANDS.iter().find(|(names, _)| names.contains(&first.as_str()))?;
        return Some((None, format!("there is no command {first}; {advice}")));
    };
    // Behind `--` everything is a value.
    let options = || args[1..].iter().take_while(|arg| *arg != "--");
    let advice = options().find_map(|arg| of_option(subcommand, arg.split('=').next()?));
    let is_named = options().any(|arg| arg.starts_with("--type"));
    let advice = advice.or_else(|| of_type(first, options().last().filter(|_| !is_named)?));
    Some((Some(first.clone()), advice?))
}

/// llama-quantize takes the type as its last argument.
fn of_type(subcommand: &str, last: &str) -> Option<String> {
    let is_type = match quantize::format(last) {
        Ok(_) => true,
        Err(error) => error.contains("comes nearest"),
    };
    let text = || format!("{last}: the type is named by an option: --type {last}");
    (subcommand == "quantize" && is_type).then(text)
}

fn of_option(subcommand: &Command, name: &str) -> Option<String> {
    let has = |long: &str| subcommand.get_arguments().any(|arg| arg.get_long() == Some(long));
    let short =
        |letter: char| subcommand.get_arguments().any(|arg| arg.get_short() == Some(letter));
    let own = match (name.strip_prefix("--"), name.strip_prefix('-')) {
        (Some(long), _) => has(long),
        (None, Some(letters)) if letters.len() == 1 => letters.chars().all(short),
        _ => false,
    };
    let (_, instead) = OPTIONS.iter().find(|(names, _)| !own && names.contains(&name))?;
    match instead {
        Use(long) if has(long) => Some(format!("{name} is not known here; use --{long}")),
        Use(_) => None,
        Note(note) => Some(format!("{name} is not known here: {note}")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::args::Cli;

    fn advice_for(line: &str) -> Option<String> {
        Some(advice(&Cli::command(), line.split(' ').map(OsString::from))?.1)
    }

    #[test]
    fn every_option_is_named_once_and_leads_to_one_of_ours() {
        let mut seen = HashSet::new();
        let command = Cli::command();
        for (names, instead) in &OPTIONS {
            for name in *names {
                assert!(seen.insert(*name), "{name} is there twice");
            }
            let Use(long) = instead else { continue };
            let commands = command.get_subcommands();
            let mut known = commands.flat_map(|one| one.get_arguments()).map(|arg| arg.get_long());
            assert!(known.any(|known| known == Some(*long)), "no command has --{long}");
        }
        for (names, _) in COMMANDS {
            assert!(names.iter().all(|name| command.find_subcommand(name).is_none()), "{names:?}");
        }
    }

    #[test]
    fn spellings_of_other_tools_are_explained() {
        for (line, words) in [
            ("serve --max-model-len 4096", "use --context"),
            ("serve --max-model-len=4096", "use --context"),
            ("serve -m x --max-num-seqs 4", "use --parallel"),
            ("serve --served-model-name a", "use --alias"),
            ("serve -ngl 99", "leave it out"),
            ("serve -md draft.gguf", "use --draft"),
            ("serve -hf a/b", "downloads nothing"),
            ("chat --temp 0.5", "use --temperature"),
            ("chat -p Hello", "as an argument"),
            ("generate --n-predict 5", "use --max-tokens"),
            ("quantize in.gguf out.gguf Q4_K_M", "--type Q4_K_M"),
            ("run -m x", "`muse chat`"),
            ("pull x", "downloads"),
            ("-m x -p y", "a command comes first"),
        ] {
            let advice = advice_for(line).unwrap_or_else(|| panic!("{line}: no advice"));
            assert!(advice.contains(words), "{line}: {advice}");
        }
    }

    #[test]
    fn our_own_options_are_not_explained() {
        for line in [
            "generate -p x --typo",
            "chat -- --temp",
            "chat -n 5 -c 64 -t 2",
            "quantize in.gguf out.gguf",
            "quantize in out --type Q4_K_M",
            "inspect --temp",
        ] {
            assert_eq!(advice_for(line), None, "{line}");
        }
    }
}
