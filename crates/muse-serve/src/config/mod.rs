//! Settings from flags, `MUSE_*` variables and a TOML file, in that order of precedence. The only
//! module that reads the environment.

mod address;
mod environment;
mod flags;

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use muse_core::contract::KvType;
use muse_core::engine::TargetItl;
use muse_serve::runtime::{KvDiskOptions, LoadOptions};
use muse_serve::service::{RequestLimits, ServiceOptions};
use muse_serve::{ModelNames, ServeOptions};
use serde::Deserialize;

use crate::logging::LogFormat;
use address::Address;
pub(crate) use environment::{unknown_variables, without_variables};
pub(crate) use flags::{ConfigFile, ModelFlags, ServeFlags};
use flags::{Kv, Rounding};

/// The largest config file that is read.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// The most bytes of KV blocks on disk, unless a setting changes it.
const KV_DISK_BYTES: u64 = 8 << 30;

/// Requests that may wait, unless a setting changes it.
const MAX_QUEUED: usize = 1024;

/// The settings of a server, complete.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Where and how to serve.
    pub(crate) options: ServeOptions,
    /// Time between tokens of an answer to aim for while other prompts are read.
    pub(crate) target_itl: TargetItl,
    /// Requests that may wait.
    pub(crate) max_queued_requests: usize,
    /// Names that requests may give the model.
    pub(crate) names: ModelNames,
    /// Filter of the log.
    pub(crate) log: String,
    /// How the log is written.
    pub(crate) log_format: LogFormat,
}

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    model: ModelFlags,
    serve: ServeFlags,
}

impl ConfigFile {
    /// Completes the model's settings from variables and the file.
    pub(crate) fn model(&self, flags: &ModelFlags) -> Result<LoadOptions> {
        let variables = environment::flags::<ModelFlags>(variable)?;
        load_options(flags.clone(), variables, self.read()?.model)
    }

    /// Completes the server's settings from variables and the file.
    pub(crate) fn serve(&self, flags: &ServeFlags) -> Result<Serving> {
        let variables = environment::flags::<ServeFlags>(variable)?;
        serving(flags.clone().or(variables).or(self.read()?.serve))
    }

    fn read(&self) -> Result<File> {
        let variables = environment::flags::<Self>(variable)?;
        match self.config.as_ref().or(variables.config.as_ref()) {
            Some(path) => read(path).with_context(|| format!("config file {}", path.display())),
            None => Ok(File::default()),
        }
    }
}

/// A variable of the environment.
fn variable(name: &OsStr) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

fn read(path: &Path) -> Result<File> {
    let text = muse_weights::read_text_file(path, MAX_CONFIG_BYTES)?;
    Ok(toml::from_str(&text)?)
}

fn load_options(flags: ModelFlags, variables: ModelFlags, file: ModelFlags) -> Result<LoadOptions> {
    for (source, name) in [(&variables, "the variables MUSE_*"), (&file, "the config file")] {
        let drafts = source.draft.is_some() || source.max_draft.is_some();
        if source.no_draft == Some(true) && drafts {
            bail!("{name}: no-draft excludes draft and max-draft; leave one side out");
        }
    }
    let all = flags.or(variables).or(file);
    if all.kv_disk_bytes.is_some() && all.kv_disk.is_none() {
        bail!("--kv-disk-bytes bounds the folder of --kv-disk, which is not named");
    }
    let kv_disk_bytes = all.kv_disk_bytes.unwrap_or(KV_DISK_BYTES);
    Ok(LoadOptions {
        model: all.model,
        draft: all.draft,
        mmproj: all.mmproj,
        chat_template: all.chat_template,
        kv: all.kv.map_or(KvType::default(), Kv::kv_type),
        weights: all.weights.map(Rounding::policy),
        context: all.context,
        parallel: all.parallel,
        threads: all.threads,
        exact: all.exact.unwrap_or(false),
        max_draft: if all.no_draft == Some(true) { Some(0) } else { all.max_draft },
        backend: all.backend,
        kv_disk: all.kv_disk.map(|folder| KvDiskOptions { folder, max_bytes: kv_disk_bytes }),
        ..LoadOptions::default()
    })
}

fn serving(flags: ServeFlags) -> Result<Serving> {
    let usual = ServeOptions::default();
    let (limits, growing) = (usual.service.limits, flags.growing_tool_calls);
    let address = |given: Option<Address>, usual: std::net::SocketAddr, port: Option<u16>| {
        let host = || flags.host.clone().unwrap_or_else(|| usual.ip().to_string());
        let address = given.unwrap_or_else(|| Address {
            host: host(),
            port: port.unwrap_or_else(|| usual.port()),
        });
        address.resolve()
    };
    let grpc = address(flags.grpc.clone(), usual.grpc, None).context("--grpc")?;
    let http = address(flags.http.clone(), usual.http, flags.port).context("--http")?;
    Ok(Serving {
        options: ServeOptions {
            grpc,
            http,
            drain: flags.drain.map_or(usual.drain, Duration::from_secs),
            keep_alive: flags.keep_alive.map_or(usual.keep_alive, Duration::from_secs),
            max_request_memory: flags.max_request_memory.unwrap_or(usual.max_request_memory),
            service: ServiceOptions {
                limits: RequestLimits {
                    max_choices: flags.max_choices.unwrap_or(limits.max_choices),
                    max_tokens: flags.max_tokens.or(limits.max_tokens),
                    max_priority: flags.max_priority.unwrap_or(limits.max_priority),
                },
                growing_tool_calls: growing.unwrap_or(usual.service.growing_tool_calls),
            },
            ..usual
        },
        target_itl: flags
            .target_itl
            .map_or(TargetItl::Auto, |ms| TargetItl::Fixed(Duration::from_millis(ms))),
        max_queued_requests: flags.max_queued_requests.map_or(MAX_QUEUED, |n| n as usize),
        names: ModelNames {
            aliases: flags.alias.unwrap_or_default(),
            strict: flags.strict_model.unwrap_or(false),
        },
        log: flags.log.unwrap_or_else(|| "info".to_owned()),
        log_format: flags.log_format.unwrap_or_default(),
    })
}

/// Whether text on `stream` may carry colours: a terminal that can, and a user who did not object.
pub(crate) fn colours(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !set("NO_COLOR") && !dumb
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::ffi::OsString;
    use std::net::SocketAddr;

    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, ConfigFile) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("muse.toml");
        std::fs::write(&path, text).expect("a file");
        (folder, ConfigFile { config: Some(path) })
    }

    fn toml(text: &str) -> File {
        toml::from_str(text).expect(text)
    }

    fn variables<A: clap::Args>(list: &[(&str, &str)]) -> Result<A> {
        let list: HashMap<OsString, OsString> =
            list.iter().map(|(name, value)| (name.into(), value.into())).collect();
        environment::flags(|name| list.get(name).cloned())
    }

    fn models(list: &[(&str, &str)]) -> ModelFlags {
        variables(list).expect("settings")
    }

    #[test]
    fn flags_win_over_variables_and_those_over_the_file() {
        let file = toml(
            "[model]\npath = '/m'\ndraft = '/d'\nkv = 'q8_0'\ncontext = 512\nthreads = 1\n\
             [serve]\nlog = 'warn'",
        );
        let flags = ModelFlags { context: Some(64), ..ModelFlags::default() };
        let variables = models(&[("MUSE_CONTEXT", "128"), ("MUSE_THREADS", "2")]);
        let options = load_options(flags, variables, file.model).expect("settings");
        assert_eq!((options.context, options.kv), (Some(64), KvType::Q8_0));
        assert_eq!((options.threads, options.draft.as_deref()), (Some(2), Some(Path::new("/d"))));
        let serving = serving(file.serve).expect("settings");
        assert_eq!((serving.log.as_str(), serving.options), ("warn", ServeOptions::default()));
    }

    #[test]
    fn a_drafter_is_not_paired_with_the_model_of_another_source() {
        let file = || toml("[model]\npath = '/m'\ndraft = '/d'").model;
        let flags = ModelFlags { model: Some("/other".into()), ..ModelFlags::default() };
        let drafter = |flags: &ModelFlags, variables, file| {
            load_options(flags.clone(), variables, file).expect("settings").draft
        };
        assert_eq!(drafter(&flags, ModelFlags::default(), file()), None);
        let both = models(&[("MUSE_MODEL", "/m"), ("MUSE_DRAFT", "/d")]);
        assert_eq!(drafter(&flags, both, ModelFlags::default()), None);
        let alone = models(&[("MUSE_DRAFT", "/d")]);
        let expected = Some("/d".into());
        assert_eq!(drafter(&flags, alone, ModelFlags::default()), expected);
    }

    #[test]
    fn an_empty_variable_is_unset_and_an_error_names_the_variable() {
        let empty = models(&[("MUSE_MODEL", ""), ("MUSE_CONTEXT", ""), ("MUSE_EXACT", "")]);
        assert!(empty.model.is_none() && empty.context.is_none() && empty.exact.is_none());
        for (name, value) in [
            ("MUSE_CONTEXT", "many"),
            ("MUSE_EXACT", "perhaps"),
            ("MUSE_KV", "f64"),
            ("MUSE_BACKEND", "abacus"),
        ] {
            let error = variables::<ModelFlags>(&[(name, value)]).expect_err(name).to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
        let error = variables::<ServeFlags>(&[("MUSE_HTTP", "8080")]).expect_err("no address");
        let error = error.to_string();
        assert!(error.contains("MUSE_HTTP") && error.contains("localhost:8080"), "{error}");
    }

    #[test]
    fn booleans_are_words_and_numbers() {
        for (value, expected) in [
            ("1", true),
            ("yes", true),
            ("on", true),
            ("true", true),
            ("0", false),
            ("no", false),
            ("off", false),
            ("false", false),
        ] {
            let flags = models(&[("MUSE_EXACT", value), ("MUSE_NO_DRAFT", value)]);
            assert_eq!((flags.exact, flags.no_draft), (Some(expected), Some(expected)), "{value}");
        }
        // A variable that says no wins over a file that says yes.
        let variables = models(&[("MUSE_EXACT", "0"), ("MUSE_NO_DRAFT", "off")]);
        let file = toml("[model]\nexact = true\nno-draft = true").model;
        let options = load_options(ModelFlags::default(), variables, file).expect("settings");
        assert_eq!((options.exact, options.max_draft), (false, None));
    }

    #[test]
    fn a_drafter_that_is_named_wins_over_no_drafter_beneath() {
        let no_draft = || models(&[("MUSE_NO_DRAFT", "1")]);
        let draft = ModelFlags { draft: Some("/d".into()), ..ModelFlags::default() };
        let options = load_options(draft, no_draft(), ModelFlags::default()).expect("settings");
        assert_eq!((options.draft, options.max_draft), (Some("/d".into()), None));
        let off = ModelFlags { no_draft: Some(true), ..ModelFlags::default() };
        let draft = models(&[("MUSE_DRAFT", "/d"), ("MUSE_MAX_DRAFT", "4")]);
        let options = load_options(off, draft, ModelFlags::default()).expect("settings");
        assert_eq!(options.max_draft, Some(0));
        let both = models(&[("MUSE_NO_DRAFT", "1"), ("MUSE_DRAFT", "/d")]);
        let error = load_options(ModelFlags::default(), both, ModelFlags::default());
        let error = error.expect_err("a contradiction").to_string();
        assert!(error.contains("MUSE_*") && error.contains("no-draft"), "{error}");
    }

    #[test]
    fn hosts_and_ports_complete_addresses() {
        let addresses = |flags: &[(&str, &str)], file: &str| {
            let flags: ServeFlags = variables(flags).expect("settings");
            let options = serving(flags.or(toml(file).serve)).expect("settings").options;
            [options.grpc, options.http].map(|address: SocketAddr| address.to_string())
        };
        assert_eq!(addresses(&[], ""), ["127.0.0.1:50051", "127.0.0.1:8080"]);
        let host = ("MUSE_HOST", "0.0.0.0");
        assert_eq!(addresses(&[host], ""), ["0.0.0.0:50051", "0.0.0.0:8080"]);
        assert_eq!(
            addresses(&[host, ("MUSE_GRPC", "localhost:1"), ("MUSE_HTTP_PORT", "2")], ""),
            ["127.0.0.1:1", "0.0.0.0:2"]
        );
        // Over the addresses of a source beneath.
        let file = "[serve]\ngrpc = '[::1]:3'\nhttp = '127.0.0.1:4'";
        assert_eq!(addresses(&[], file), ["[::1]:3", "127.0.0.1:4"]);
        assert_eq!(addresses(&[host], file), ["0.0.0.0:3", "0.0.0.0:4"]);
        assert_eq!(addresses(&[("MUSE_HTTP_PORT", "5")], file), ["[::1]:3", "127.0.0.1:5"]);
        let file = "[serve]\nhost = '::1'\nport = 6";
        assert_eq!(
            addresses(&[("MUSE_HTTP", "localhost:7")], file),
            ["[::1]:50051", "127.0.0.1:7"]
        );
    }

    #[test]
    fn the_length_of_the_queue_comes_from_each_source() {
        let length = |flags| serving(flags).expect("settings").max_queued_requests;
        assert_eq!(length(ServeFlags::default()), 1024);
        assert_eq!(length(toml("[serve]\nmax-queued-requests = 9").serve), 9);
        let given: ServeFlags = variables(&[("MUSE_MAX_QUEUED_REQUESTS", "5")]).expect("a number");
        assert_eq!(length(given), 5);
        let refused: Result<ServeFlags> = variables(&[("MUSE_MAX_QUEUED_REQUESTS", "0")]);
        refused.expect_err("nobody could wait");
    }

    #[test]
    fn limits_come_from_each_source() {
        let variables: ServeFlags = variables(&[
            ("MUSE_KEEP_ALIVE", "300"),
            ("MUSE_MAX_REQUEST_MEMORY", "1000000"),
            ("MUSE_MAX_CHOICES", "4"),
            ("MUSE_MAX_TOKENS", "2000"),
            ("MUSE_MAX_PRIORITY", "-1"),
            ("MUSE_GROWING_TOOL_CALLS", "on"),
            ("MUSE_ALIAS", "gpt-4o,local model,a"),
        ])
        .expect("settings");
        let file = || {
            toml(
                "[serve]\nkeep-alive = 90\nmax-request-memory = 7\nmax-choices = 2\n\
                 max-tokens = 3\nmax-priority = 5\ngrowing-tool-calls = true\nalias = ['b']",
            )
            .serve
        };
        let settings = |flags: ServeFlags| {
            let Serving { options, names, .. } = serving(flags).expect("settings");
            let ServiceOptions { limits, growing_tool_calls } = options.service;
            let RequestLimits { max_choices, max_tokens, max_priority } = limits;
            let seconds = options.keep_alive.as_secs();
            let limits = (max_choices, max_tokens, max_priority);
            (seconds, options.max_request_memory, limits, growing_tool_calls, names.aliases)
        };
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let usual = (120, 1 << 30, (16, None, 0), false, names(&[]));
        assert_eq!(settings(ServeFlags::default()), usual);
        let from_file = (90, 7, (2, Some(3), 5), true, names(&["b"]));
        assert_eq!(settings(file()), from_file);
        let all = ["gpt-4o", "local model", "a"];
        let from_variables = (300, 1_000_000, (4, Some(2000), -1), true, names(&all));
        assert_eq!(settings(variables.or(file())), from_variables);
        let flags = ServeFlags {
            max_choices: Some(1),
            growing_tool_calls: Some(false),
            ..ServeFlags::default()
        };
        let mixed = (90, 7, (1, Some(3), 5), false, names(&["b"]));
        assert_eq!(settings(flags.or(file())), mixed);
    }

    #[test]
    fn limits_of_nothing_are_refused() {
        for (name, key) in [
            ("MUSE_KEEP_ALIVE", "keep-alive"),
            ("MUSE_MAX_CHOICES", "max-choices"),
            ("MUSE_MAX_TOKENS", "max-tokens"),
        ] {
            let error = variables::<ServeFlags>(&[(name, "0")]).expect_err(name).to_string();
            assert!(error.contains(name), "{error}");
            let error = toml::from_str::<File>(&format!("[serve]\n{key} = 0")).expect_err(key);
            let error = error.to_string();
            assert!(error.contains(key) && error.contains("at least 1"), "{error}");
        }
    }

    #[test]
    fn unknown_keys_and_bad_values_are_refused() {
        for (text, said) in [
            ("[model]\nkvv = 1", "kvv"),
            ("[model]\npath = ''", "the path is empty"),
            ("[model]\nkv-disk = ''", "the path is empty"),
            ("[serve]\ngrpc = 'here'", "localhost:8080"),
            ("[serve]\nlog-format = 'xml'", "xml"),
            ("x = 1", "x"),
        ] {
            let (_folder, file) = file(text);
            let error = format!("{:#}", file.model(&ModelFlags::default()).expect_err(text));
            assert!(error.contains(said) && error.contains("muse.toml"), "{error}");
        }
        let file = toml("[model]\nkv-disk-bytes = 5").model;
        let error = load_options(ModelFlags::default(), ModelFlags::default(), file);
        assert!(error.expect_err("no folder").to_string().contains("--kv-disk"));
    }
}
