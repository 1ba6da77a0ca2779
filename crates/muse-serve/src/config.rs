//! Settings from flags, `MUSE_*` variables and a TOML file, in that order of precedence. The only
//! file that reads the environment.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use muse_core::contract::KvType;
use muse_core::model::BfpPolicy;
use muse_serve::ServeOptions;
use muse_serve::runtime::backends::Backends;
use muse_serve::runtime::{KvDiskOptions, LoadOptions};
use serde::Deserialize;

use crate::logging::LogFormat;

/// The most bytes of KV blocks on disk, unless a setting changes it.
const KV_DISK_BYTES: u64 = 8 << 30;

/// Milliseconds between tokens of an answer, unless a setting changes it.
const TARGET_ITL_MS: u64 = 500;

/// The file that holds what flags and variables leave open.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConfigFile {
    /// TOML file with tables `model` and `serve`; keys are the flags' long names, `--model`'s
    /// is `path`
    #[arg(long, value_name = "FILE", env = "MUSE_CONFIG")]
    config: Option<PathBuf>,
}

/// Which model runs, and how.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelFlags {
    /// HuggingFace folder or GGUF file (any part of a split one); the embedded muse-nano if absent
    #[arg(long, value_name = "PATH", env = "MUSE_MODEL")]
    #[serde(rename = "path")]
    model: Option<PathBuf>,
    /// Folder or GGUF file of the DFlash drafter; the embedded model brings its own
    #[arg(long, value_name = "PATH", env = "MUSE_DRAFT")]
    draft: Option<PathBuf>,
    /// Jinja file that renders conversations, in place of the native chat template
    #[arg(long, value_name = "FILE", env = "MUSE_CHAT_TEMPLATE")]
    chat_template: Option<PathBuf>,
    /// GGUF file of the vision tower
    #[arg(long, value_name = "PATH", env = "MUSE_MMPROJ")]
    mmproj: Option<PathBuf>,
    /// How the K/V cache is stored, the drafter's too [default: bf16]
    #[arg(long, value_name = "TYPE", env = "MUSE_KV")]
    kv: Option<Kv>,
    /// Round matrices to what a Tenstorrent card would hold: bfp8, or the published mix of bfp8 and
    /// bfp4; for comparing with a card
    #[arg(long, value_name = "MIX", env = "MUSE_WEIGHTS")]
    weights: Option<Rounding>,
    /// Positions a sequence may have [default: what the checkpoint allows and memory holds]
    #[arg(long, value_name = "TOKENS", env = "MUSE_CONTEXT")]
    context: Option<u32>,
    /// Sequences of full length that the cache holds [default: 1; serve: by memory, at most 8]
    #[arg(long, value_name = "N", env = "MUSE_PARALLEL")]
    parallel: Option<usize>,
    /// Threads that compute [default: one a core]
    #[arg(long, value_name = "N", env = "MUSE_THREADS")]
    threads: Option<usize>,
    /// Multiply by unrounded activations: slower, for comparing with references
    #[arg(long, env = "MUSE_EXACT")]
    exact: bool,
    /// Tokens drafted ahead of every verify [default: as many as pay, at most the drafter's width]
    #[arg(long, value_name = "N", env = "MUSE_MAX_DRAFT")]
    max_draft: Option<u32>,
    /// Run without the drafter
    #[arg(long, conflicts_with_all = ["draft", "max_draft"], env = "MUSE_NO_DRAFT")]
    no_draft: bool,
    /// Folder for KV blocks that are evicted from the cache; reused after a restart
    #[arg(long, value_name = "DIR", env = "MUSE_KV_DISK")]
    kv_disk: Option<PathBuf>,
    /// The most bytes of that folder [default: 8 GiB]
    #[arg(long, value_name = "BYTES", requires = "kv_disk", env = "MUSE_KV_DISK_BYTES")]
    kv_disk_bytes: Option<u64>,
    /// Device to run on [default: cpu]
    #[arg(long, value_name = "NAME", env = "MUSE_BACKEND")]
    #[arg(value_parser = Backends::default().names())]
    backend: Option<String>,
}

/// What the server does with it.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServeFlags {
    /// Address of gRPC [default: 127.0.0.1:50051]
    #[arg(long, value_name = "ADDR", env = "MUSE_GRPC")]
    grpc: Option<SocketAddr>,
    /// Address of HTTP [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", env = "MUSE_HTTP")]
    http: Option<SocketAddr>,
    /// How long running requests may take to finish when the server is told to stop [default: 30]
    #[arg(long, value_name = "SECONDS", env = "MUSE_DRAIN", allow_negative_numbers = true)]
    drain: Option<u64>,
    /// Milliseconds between tokens of an answer to aim for while other prompts are read: prefill
    /// chunks shrink to keep it [default: 500]
    #[arg(long, value_name = "MS", env = "MUSE_TARGET_ITL")]
    target_itl: Option<u64>,
    /// What to log, such as warn, debug or info,muse=debug [default: info]
    #[arg(long, value_name = "FILTER", env = "MUSE_LOG")]
    log: Option<String>,
    /// How to log: text, or json with one object a line [default: text]
    #[arg(long, value_name = "FORMAT", env = "MUSE_LOG_FORMAT")]
    log_format: Option<LogFormat>,
}

/// The settings of a server, complete.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Where and how to serve.
    pub(crate) options: ServeOptions,
    /// Time between tokens of an answer to aim for while other prompts are read.
    pub(crate) target_itl: Duration,
    /// Filter of the log.
    pub(crate) log: String,
    /// How the log is written.
    pub(crate) log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kv {
    F32,
    Bf16,
    F16,
    #[value(name = "q8_0")]
    #[serde(rename = "q8_0")]
    Q8_0,
}

#[derive(Clone, Copy, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Rounding {
    Bfp8,
    Bfp4,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    model: ModelFlags,
    serve: ServeFlags,
}

impl ConfigFile {
    fn read(&self) -> Result<File> {
        let Some(path) = &self.config else { return Ok(File::default()) };
        read(path).with_context(|| format!("config file {}", path.display()))
    }

    /// Completes the model's settings from the file.
    pub(crate) fn model(&self, flags: &ModelFlags) -> Result<LoadOptions> {
        let file = self.read()?.model;
        let flags = flags.clone();
        // A drafter belongs to its model: one from the file is not paired with a model from a flag.
        let (draft, mmproj) = match flags.model {
            Some(_) => (flags.draft, flags.mmproj),
            None => (flags.draft.or(file.draft), flags.mmproj.or(file.mmproj)),
        };
        let no_draft = flags.no_draft || (file.no_draft && draft.is_none());
        Ok(LoadOptions {
            model: flags.model.or(file.model),
            draft,
            mmproj,
            chat_template: flags.chat_template.or(file.chat_template),
            kv: flags.kv.or(file.kv).map_or(KvType::default(), Kv::kv_type),
            weights: flags.weights.or(file.weights).map(Rounding::policy),
            context: flags.context.or(file.context),
            parallel: flags.parallel.or(file.parallel),
            threads: flags.threads.or(file.threads),
            exact: flags.exact || file.exact,
            max_draft: if no_draft { Some(0) } else { flags.max_draft.or(file.max_draft) },
            backend: flags.backend.or(file.backend),
            kv_disk: flags.kv_disk.or(file.kv_disk).map(|folder| {
                let max_bytes = flags.kv_disk_bytes.or(file.kv_disk_bytes);
                KvDiskOptions { folder, max_bytes: max_bytes.unwrap_or(KV_DISK_BYTES) }
            }),
            ..LoadOptions::default()
        })
    }

    /// Completes the server's settings from the file.
    pub(crate) fn serve(&self, flags: &ServeFlags) -> Result<Serving> {
        let file = self.read()?.serve;
        let (flags, usual) = (flags.clone(), ServeOptions::default());
        let drain = flags.drain.or(file.drain).map(Duration::from_secs);
        Ok(Serving {
            options: ServeOptions {
                grpc: flags.grpc.or(file.grpc).unwrap_or(usual.grpc),
                http: flags.http.or(file.http).unwrap_or(usual.http),
                drain: drain.unwrap_or(usual.drain),
                ..usual
            },
            target_itl: Duration::from_millis(
                flags.target_itl.or(file.target_itl).unwrap_or(TARGET_ITL_MS),
            ),
            log: flags.log.or(file.log).unwrap_or_else(|| "info".to_owned()),
            log_format: flags.log_format.or(file.log_format).unwrap_or_default(),
        })
    }
}

impl Kv {
    fn kv_type(self) -> KvType {
        match self {
            Self::F32 => KvType::F32,
            Self::Bf16 => KvType::Bf16,
            Self::F16 => KvType::F16,
            Self::Q8_0 => KvType::Q8_0,
        }
    }
}

impl Rounding {
    fn policy(self) -> BfpPolicy {
        match self {
            Self::Bfp8 => BfpPolicy::Bfp8,
            Self::Bfp4 => BfpPolicy::Bfp4,
        }
    }
}

/// The largest configuration file that is read.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

fn read(path: &Path) -> Result<File> {
    let text = muse_weights::read_text_file(path, MAX_CONFIG_BYTES)?;
    Ok(toml::from_str(&text)?)
}

/// Whether text on `stream` may carry colours: a terminal that can, and a user who did not object.
pub(crate) fn colours(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !set("NO_COLOR") && !dumb
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, ConfigFile) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("muse.toml");
        std::fs::write(&path, text).expect("a file");
        (folder, ConfigFile { config: Some(path) })
    }

    #[test]
    fn flags_win_over_the_file() {
        let (_folder, file) = file(
            "[model]\npath = '/m'\ndraft = '/d'\nkv = 'q8_0'\ncontext = 512\n[serve]\nlog = 'warn'",
        );
        let flags = ModelFlags { context: Some(64), ..ModelFlags::default() };
        let options = file.model(&flags).expect("settings");
        assert_eq!((options.context, options.kv), (Some(64), KvType::Q8_0));
        assert_eq!(options.draft.as_deref(), Some(Path::new("/d")));
        let serve = file.serve(&ServeFlags::default()).expect("settings");
        assert_eq!((serve.log.as_str(), serve.options), ("warn", ServeOptions::default()));
    }

    #[test]
    fn a_model_flag_leaves_the_files_drafter_behind() {
        let (_folder, file) = file("[model]\npath = '/m'\ndraft = '/d'");
        let flags = ModelFlags { model: Some("/other".into()), ..ModelFlags::default() };
        assert_eq!(file.model(&flags).expect("settings").draft, None);
    }

    #[test]
    fn unknown_keys_and_bad_values_are_refused() {
        for (text, said) in
            [("[model]\nkvv = 1", "kvv"), ("[serve]\ngrpc = 'here'", "grpc"), ("x = 1", "x")]
        {
            let (_folder, file) = file(text);
            let error = format!("{:#}", file.model(&ModelFlags::default()).expect_err(text));
            assert!(error.contains(said) && error.contains("muse.toml"), "{error}");
        }
    }
}
