//! The settings that flags, variables and the file may give. All are optional, so that each source
//! shows what it leaves open.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use muse_core::contract::KvType;
use muse_core::model::BfpPolicy;
use muse_serve::runtime::backends::Backends;
use serde::de::{Deserialize, Deserializer, Error as _};

use super::address::Address;
use crate::logging::LogFormat;

/// The file that holds what flags and variables leave open.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConfigFile {
    /// TOML file with tables `model` and `serve`; keys are the flags' long names, `--model`'s
    /// is `path`
    #[arg(long, value_name = "FILE", env = "MUSE_CONFIG")]
    pub(super) config: Option<PathBuf>,
}

/// Which model runs, and how.
#[derive(Args, Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelFlags {
    /// HuggingFace folder or GGUF file (any part of a split one); the embedded muse-nano if absent
    #[arg(short, long, value_name = "PATH", env = "MUSE_MODEL")]
    #[serde(rename = "path", deserialize_with = "path")]
    pub(super) model: Option<PathBuf>,
    /// Folder or GGUF file of the DFlash drafter; the embedded model brings its own
    #[arg(long, value_name = "PATH", env = "MUSE_DRAFT")]
    #[serde(deserialize_with = "path")]
    pub(super) draft: Option<PathBuf>,
    /// Jinja file that renders conversations, in place of the native chat template
    #[arg(long, value_name = "FILE", env = "MUSE_CHAT_TEMPLATE")]
    #[serde(deserialize_with = "path")]
    pub(super) chat_template: Option<PathBuf>,
    /// GGUF file of the vision tower
    #[arg(long, value_name = "PATH", env = "MUSE_MMPROJ")]
    #[serde(deserialize_with = "path")]
    pub(super) mmproj: Option<PathBuf>,
    /// How the K/V cache is stored, the drafter's too [default: bf16]
    #[arg(long, value_name = "TYPE", env = "MUSE_KV")]
    pub(super) kv: Option<Kv>,
    /// Round matrices to what a Tenstorrent card would hold: bfp8, or the published mix of bfp8 and
    /// bfp4; for comparing with a card
    #[arg(long, value_name = "MIX", env = "MUSE_WEIGHTS")]
    pub(super) weights: Option<Rounding>,
    /// Positions a sequence may have [default: what the checkpoint allows and memory holds]
    #[arg(short, long, value_name = "TOKENS", env = "MUSE_CONTEXT")]
    pub(super) context: Option<u32>,
    /// Sequences of full length that the cache holds [default: 1; serve: by memory, at most 8]
    #[arg(long, value_name = "N", env = "MUSE_PARALLEL")]
    pub(super) parallel: Option<usize>,
    /// Threads that compute [default: one a core]
    #[arg(short, long, value_name = "N", env = "MUSE_THREADS")]
    pub(super) threads: Option<usize>,
    /// Multiply by unrounded activations: slower, for comparing with references
    #[arg(long, value_name = "yes|no", env = "MUSE_EXACT", value_parser = BoolishValueParser::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "yes")]
    pub(super) exact: Option<bool>,
    /// Tokens drafted ahead of every verify [default: as many as pay, at most the drafter's width]
    #[arg(long, value_name = "N", env = "MUSE_MAX_DRAFT")]
    pub(super) max_draft: Option<u32>,
    /// Run without the drafter
    #[arg(long, value_name = "yes|no", env = "MUSE_NO_DRAFT")]
    #[arg(conflicts_with_all = ["draft", "max_draft"], value_parser = BoolishValueParser::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "yes")]
    pub(super) no_draft: Option<bool>,
    /// Folder for KV blocks that are evicted from the cache; reused after a restart
    #[arg(long, value_name = "DIR", env = "MUSE_KV_DISK")]
    #[serde(deserialize_with = "path")]
    pub(super) kv_disk: Option<PathBuf>,
    /// The most bytes of that folder, such as 500M or 8G [default: 8G]
    #[arg(long, value_name = "BYTES", env = "MUSE_KV_DISK_BYTES", value_parser = bytes)]
    pub(super) kv_disk_bytes: Option<u64>,
    /// Device to run on [default: cpu]
    #[arg(long, value_name = "NAME", env = "MUSE_BACKEND")]
    #[arg(value_parser = Backends::default().names())]
    pub(super) backend: Option<String>,
}

/// What the server does with it.
#[derive(Args, Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServeFlags {
    /// Host of both addresses; 0.0.0.0 or :: listens on all interfaces [default: 127.0.0.1]
    #[arg(long, value_name = "HOST", env = "MUSE_HOST", value_parser = super::address::host)]
    pub(super) host: Option<String>,
    // Kubernetes sets MUSE_PORT for a service that is called muse.
    /// Port of HTTP [default: 8080]
    #[arg(long, value_name = "PORT", env = "MUSE_HTTP_PORT", conflicts_with = "http")]
    pub(super) port: Option<u16>,
    /// Address of gRPC [default: 127.0.0.1:50051]
    #[arg(long, value_name = "ADDR", env = "MUSE_GRPC")]
    pub(super) grpc: Option<Address>,
    /// Address of HTTP [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", env = "MUSE_HTTP")]
    pub(super) http: Option<Address>,
    /// Another name of the model, for requests; may be repeated
    #[arg(long, value_name = "NAME", env = "MUSE_ALIAS", value_delimiter = ',')]
    pub(super) alias: Option<Vec<String>>,
    /// Refuse requests for a model of a name that is not known
    #[arg(long, value_name = "yes|no", env = "MUSE_STRICT_MODEL")]
    #[arg(value_parser = BoolishValueParser::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "yes")]
    pub(super) strict_model: Option<bool>,
    /// How long running requests may take to finish when the server is told to stop [default: 30]
    #[arg(long, value_name = "SECONDS", env = "MUSE_DRAIN", allow_negative_numbers = true)]
    pub(super) drain: Option<u64>,
    /// How long an HTTP connection may stay idle; give more than the proxy in front keeps its
    /// connections, often 60 to 75 [default: 120]
    #[arg(long, value_name = "SECONDS", env = "MUSE_KEEP_ALIVE", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    #[serde(deserialize_with = "positive")]
    pub(super) keep_alive: Option<u64>,
    /// The most bytes of memory that all requests hold together, replies that wait for their
    /// clients included; more are refused [default: 1 GiB]
    #[arg(long, value_name = "BYTES", env = "MUSE_MAX_REQUEST_MEMORY", value_parser = size)]
    pub(super) max_request_memory: Option<usize>,
    /// The most requests that wait for their turn; more are refused, as are those that
    /// `--max-request-memory` has no memory for [default: 1024]
    #[arg(long, value_name = "N", env = "MUSE_MAX_QUEUED_REQUESTS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    #[serde(deserialize_with = "positive")]
    pub(super) max_queued_requests: Option<u32>,
    /// The most answers to one request, `n` of HTTP [default: 16]
    #[arg(long, value_name = "N", env = "MUSE_MAX_CHOICES")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    #[serde(deserialize_with = "positive")]
    pub(super) max_choices: Option<u32>,
    /// The most tokens of one answer; requests for more get this many [default: all positions]
    #[arg(long, value_name = "TOKENS", env = "MUSE_MAX_TOKENS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    #[serde(deserialize_with = "positive")]
    pub(super) max_tokens: Option<u32>,
    /// The highest priority that a request may have; higher ones count as this [default: 0]
    #[arg(long, value_name = "N", env = "MUSE_MAX_PRIORITY", allow_negative_numbers = true)]
    pub(super) max_priority: Option<i32>,
    /// Stream tool calls while they are generated, where a request does not say; else they are sent
    /// whole
    #[arg(long, value_name = "yes|no", env = "MUSE_GROWING_TOOL_CALLS")]
    #[arg(value_parser = BoolishValueParser::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "yes")]
    pub(super) growing_tool_calls: Option<bool>,
    /// Milliseconds between tokens of an answer to aim for while other prompts are read: prefill
    /// chunks shrink to keep it [default: 4 times what a token takes alone, 50 to 500]
    #[arg(long, value_name = "MS", env = "MUSE_TARGET_ITL")]
    pub(super) target_itl: Option<u64>,
    /// What to log, such as warn, debug or info,muse=debug [default: info]
    #[arg(long, value_name = "FILTER", env = "MUSE_LOG")]
    pub(super) log: Option<String>,
    /// How to log: text, or json with one object a line [default: text]
    #[arg(long, value_name = "FORMAT", env = "MUSE_LOG_FORMAT")]
    pub(super) log_format: Option<LogFormat>,
}

#[derive(Clone, Copy, Debug, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kv {
    F32,
    Bf16,
    F16,
    #[value(name = "q8_0")]
    #[serde(rename = "q8_0")]
    Q8_0,
}

#[derive(Clone, Copy, Debug, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Rounding {
    Bfp8,
    Bfp4,
}

impl ModelFlags {
    /// The same with `model`, if there is one.
    #[must_use]
    pub(crate) fn with_model(self, model: Option<PathBuf>) -> Self {
        Self { model: model.or(self.model), ..self }
    }

    /// Completes what is open from a source of lower precedence. A drafter and a vision tower
    /// belong to their model: those beside another model are left behind.
    pub(super) fn or(self, lower: Self) -> Self {
        let (draft, mmproj) = match self.model.is_some() && lower.model.is_some() {
            true => (self.draft, self.mmproj),
            false => (self.draft.or(lower.draft), self.mmproj.or(lower.mmproj)),
        };
        let drafts = draft.is_some() || self.max_draft.is_some();
        Self {
            no_draft: self.no_draft.or(lower.no_draft.filter(|_| !drafts)),
            model: self.model.or(lower.model),
            draft,
            mmproj,
            chat_template: self.chat_template.or(lower.chat_template),
            kv: self.kv.or(lower.kv),
            weights: self.weights.or(lower.weights),
            context: self.context.or(lower.context),
            parallel: self.parallel.or(lower.parallel),
            threads: self.threads.or(lower.threads),
            exact: self.exact.or(lower.exact),
            max_draft: self.max_draft.or(lower.max_draft),
            kv_disk: self.kv_disk.or(lower.kv_disk),
            kv_disk_bytes: self.kv_disk_bytes.or(lower.kv_disk_bytes),
            backend: self.backend.or(lower.backend),
        }
    }
}

impl ServeFlags {
    /// Completes what is open from a source of lower precedence.
    pub(super) fn or(self, lower: Self) -> Self {
        // Host and port of a higher source change the address of a lower one.
        let beneath = |address: Option<Address>, port: Option<u16>| {
            address.map(|address| Address {
                host: self.host.clone().unwrap_or(address.host),
                port: port.unwrap_or(address.port),
            })
        };
        let grpc = self.grpc.or_else(|| beneath(lower.grpc, None));
        let http = self.http.or_else(|| beneath(lower.http, self.port));
        Self {
            grpc,
            http,
            host: self.host.or(lower.host),
            port: self.port.or(lower.port),
            alias: self.alias.or(lower.alias),
            strict_model: self.strict_model.or(lower.strict_model),
            drain: self.drain.or(lower.drain),
            keep_alive: self.keep_alive.or(lower.keep_alive),
            max_queued_requests: self.max_queued_requests.or(lower.max_queued_requests),
            max_request_memory: self.max_request_memory.or(lower.max_request_memory),
            max_choices: self.max_choices.or(lower.max_choices),
            max_tokens: self.max_tokens.or(lower.max_tokens),
            max_priority: self.max_priority.or(lower.max_priority),
            growing_tool_calls: self.growing_tool_calls.or(lower.growing_tool_calls),
            target_itl: self.target_itl.or(lower.target_itl),
            log: self.log.or(lower.log),
            log_format: self.log_format.or(lower.log_format),
        }
    }
}

impl Kv {
    pub(super) fn kv_type(self) -> KvType {
        match self {
            Self::F32 => KvType::F32,
            Self::Bf16 => KvType::Bf16,
            Self::F16 => KvType::F16,
            Self::Q8_0 => KvType::Q8_0,
        }
    }
}

impl Rounding {
    pub(super) fn policy(self) -> BfpPolicy {
        match self {
            Self::Bfp8 => BfpPolicy::Bfp8,
            Self::Bfp4 => BfpPolicy::Bfp4,
        }
    }
}

/// A number of the file that is at least 1.
fn positive<'de, D, N>(from: D) -> Result<Option<N>, D::Error>
where
    D: Deserializer<'de>,
    N: Deserialize<'de> + Default + PartialEq,
{
    let number = N::deserialize(from)?;
    match number == N::default() {
        true => Err(D::Error::custom("found 0; give at least 1")),
        false => Ok(Some(number)),
    }
}

/// A number of bytes, or of KiB, MiB, GiB or TiB behind which K, M, G or T stands.
fn bytes(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches("iB");
    let unit = "KMGT"
        .find(|unit: char| number.ends_with(unit.to_ascii_lowercase()) || number.ends_with(unit));
    let (digits, power) = match unit {
        Some(at) => (&number[..number.len() - 1], 10 * (at as u32 + 1)),
        None => (text, 0),
    };
    let count: u64 = digits.parse().map_err(|_| "not a size such as 8589934592, 500M or 8G")?;
    count.checked_mul(1 << power).ok_or_else(|| "more bytes than can be counted".to_owned())
}

/// The same, of memory.
fn size(text: &str) -> Result<usize, String> {
    bytes(text)?.try_into().map_err(|_| "more bytes than memory can have".to_owned())
}

/// A path of the file.
fn path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    let path = String::deserialize(from)?;
    match path.is_empty() {
        true => Err(D::Error::custom("the path is empty; name one or leave the key out")),
        false => Ok(Some(path.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [
            ("0", 0),
            ("8589934592", 8 << 30),
            ("8G", 8 << 30),
            ("8g", 8 << 30),
            ("8GiB", 8 << 30),
            ("3K", 3 << 10),
            ("500M", 500 << 20),
            ("2T", 2 << 40),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for wrong in ["", "G", "8 G", "-1", "1.5G", "8GB", "8iB", "99999999999T", "é"] {
            bytes(wrong).expect_err(wrong);
        }
    }
}
