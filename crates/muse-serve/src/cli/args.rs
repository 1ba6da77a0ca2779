//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use muse_core::quant::Format;
use muse_proto::v1;

use super::{foreign, quantize, version, vision};
use crate::config::{ConfigFile, ModelFlags, ServeFlags, unknown_variables, without_variables};
use crate::logging::print_line;

/// Muse-Glimmer on your own machine.
#[derive(Parser)]
#[command(name = "muse", version, long_version = version::text(), max_term_width = 100)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Serve the model over gRPC and HTTP
    Serve(ServeCommand),
    /// Talk to the model, here or on a server
    Chat(ChatCommand),
    /// Complete a raw prompt, without the chat format
    Generate(GenerateCommand),
    /// Show what a checkpoint holds
    Inspect(InspectCommand),
    /// Write a checkpoint as a GGUF file in another type
    Quantize(QuantizeCommand),
    /// Measure how fast the model runs here, beside what the machine can do at most
    Bench(BenchCommand),
    /// Print the completions of a shell
    Completions(CompletionsCommand),
    /// Write manual pages
    Man(ManCommand),
    /// What pictures cost and become
    Vision(vision::VisionCommand),
}

#[derive(Args)]
pub(super) struct ServeCommand {
    /// The same as --model
    #[arg(value_name = "PATH", conflicts_with = "model")]
    path: Option<PathBuf>,
    #[command(flatten)]
    pub(super) config: ConfigFile,
    #[command(flatten)]
    pub(super) serve: ServeFlags,
    #[command(flatten)]
    model: ModelFlags,
}

#[derive(Args)]
pub(super) struct ChatCommand {
    /// Ask this, print the answer and end; without it, a conversation at a terminal.
    /// `-` is all of standard input. A file or pipe at standard input is appended to the message,
    /// or is the message where none is given
    pub(super) message: Option<String>,
    /// Take each line of standard input as the next message of one conversation
    #[arg(long, conflicts_with_all = ["message", "json"])]
    pub(super) line_by_line: bool,
    /// Instructions that stand before the conversation
    #[arg(long, value_name = "TEXT")]
    pub(super) system: Option<String>,
    /// How much the model thinks before it answers [default: high]
    #[arg(long, value_name = "STRENGTH")]
    pub(super) reasoning: Option<Strength>,
    /// The date in the prompt [default: today, UTC]
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub(super) date: Option<String>,
    /// Let the model use the time, a calculator and the statistics of a text, all run here
    #[arg(long)]
    pub(super) tools: bool,
    /// Print one JSON object: reasoning, content, tool_calls, finish_reason, usage, timings; with
    /// --tools the results of all calls as well
    #[arg(long, requires = "message")]
    pub(super) json: bool,
    /// Talk to a server's gRPC address instead of running a model here
    #[arg(long, value_name = "URL")]
    pub(super) server: Option<String>,
    /// The most tokens of an answer, its reasoning included; -1 for all the room that is left
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true)]
    pub(super) max_tokens: Option<OrUnset<u32>>,
    #[command(flatten)]
    pub(super) config: ConfigFile,
    #[command(flatten)]
    pub(super) sampling: SamplingFlags,
    #[command(flatten)]
    pub(super) model: ModelFlags,
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("input").required(true).args(["prompt", "ids"]))]
pub(super) struct GenerateCommand {
    /// Text to continue. `-` is all of standard input. Special tokens such as <|start|> are encoded as such;
    /// <|begin_of_text|> comes first unless it is there already
    #[arg(short, long, value_name = "TEXT")]
    pub(super) prompt: Option<String>,
    /// Token ids to continue, with nothing added; works without a tokenizer
    #[arg(long, value_name = "1,2,3", value_delimiter = ',')]
    pub(super) ids: Vec<u32>,
    /// Do not begin --prompt with <|begin_of_text|>
    #[arg(long, conflicts_with = "ids")]
    pub(super) no_bos: bool,
    /// The most tokens to generate, -1 for all the room that is left [default: -1]
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true)]
    pub(super) max_tokens: Option<OrUnset<u32>>,
    /// Go on past the tokens that end a turn
    #[arg(long)]
    pub(super) ignore_stop: bool,
    /// Write the prompt's logits, f32 [tokens, vocabulary] after scale and cap, as safetensors
    #[arg(long, value_name = "FILE")]
    pub(super) logits: Option<PathBuf>,
    /// Print one JSON object: ids, text, finish_reason, accepted per verify, usage, timings
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) config: ConfigFile,
    #[command(flatten)]
    pub(super) sampling: SamplingFlags,
    #[command(flatten)]
    pub(super) model: ModelFlags,
}

#[derive(Args)]
pub(super) struct InspectCommand {
    /// HuggingFace folder or GGUF file (any part of a split one)
    pub(super) path: PathBuf,
    /// Print one JSON object, with the memory that the model takes at several lengths
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args)]
pub(super) struct QuantizeCommand {
    /// HuggingFace folder or GGUF file (any part of a split one), in f32, bf16, f16 or q8_0
    pub(super) input: PathBuf,
    /// The GGUF file to write; it must not exist
    pub(super) output: PathBuf,
    /// Type of the matrices: f32, f16, bf16, q8_0, q6_k, q5_k, q5_1, q5_0, q4_k, q4_1 or q4_0
    #[arg(long = "type", value_name = "TYPE", value_parser = quantize::format)]
    pub(super) body: Format,
    /// Type of the head [default: q6_k where the body has fewer bits, else the body's]
    #[arg(long, value_name = "TYPE", value_parser = quantize::format)]
    pub(super) keep_head: Option<Format>,
    /// Which columns matter: a GGUF file of llama-imatrix
    #[arg(long, value_name = "FILE")]
    pub(super) imatrix: Option<PathBuf>,
    /// Write the vision tower with its projector instead of the text model
    #[arg(long)]
    pub(super) vision: bool,
    /// Take the tokenizer from this checkpoint; a drafter's folder has none
    #[arg(long, value_name = "PATH")]
    pub(super) vocabulary: Option<PathBuf>,
    /// Threads to work with [default: all]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<NonZeroUsize>,
}

#[derive(Args)]
pub(super) struct BenchCommand {
    /// The same as --model
    #[arg(value_name = "PATH", conflicts_with = "model")]
    path: Option<PathBuf>,
    /// Lengths of prompts to run
    #[arg(short, long, value_name = "ROWS", value_delimiter = ',', default_value = "512,2048")]
    pub(super) prompt: Vec<u32>,
    /// Tokens to decode, one after the other; 0 leaves decoding out
    #[arg(short = 'n', long, value_name = "N", default_value_t = 32)]
    pub(super) tokens: u32,
    /// Rows that are in the cache when decoding begins
    #[arg(short, long, value_name = "ROWS", value_delimiter = ',', default_value = "0,2048")]
    pub(super) depth: Vec<u32>,
    /// Rows of a verify, run with the head on the last row and with the head on all
    #[arg(long, value_name = "ROWS", value_delimiter = ',', default_value = "1,2,4,8,16,32")]
    pub(super) rows: Vec<u32>,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) repeats: u32,
    /// Run fixed prompts instead: prose, code and JSON, 256 tokens each, greedily, in an empty cache
    #[arg(long, conflicts_with_all = ["prompt", "tokens", "depth", "rows", "repeats"])]
    pub(super) suite: Option<Suite>,
    /// Print one JSON object with every sample, the ceilings and the definitions
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) config: ConfigFile,
    #[command(flatten)]
    model: ModelFlags,
}

#[derive(Args)]
pub(super) struct CompletionsCommand {
    /// The shell; for bash: `source <(muse completions bash)`
    pub(super) shell: clap_complete::Shell,
}

#[derive(Args)]
pub(super) struct ManCommand {
    /// Folder for muse.1 and a page for each subcommand; pages that are there are replaced
    #[arg(value_name = "DIR")]
    pub(super) folder: PathBuf,
}

/// How tokens are drawn; what is absent is the checkpoint's default.
#[derive(Args)]
#[command(next_help_heading = "Sampling (defaults are the checkpoint's)")]
pub(super) struct SamplingFlags {
    /// Always the likeliest token: --temperature 0
    #[arg(long, conflicts_with = "temperature")]
    greedy: bool,
    /// Flattens (above 1) or sharpens (below 1) the choice
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<f32>,
    /// Keep the K likeliest tokens; 0 keeps all
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    top_k: Option<u32>,
    /// Keep the smallest set of tokens with at least this probability
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Keep tokens with at least this share of the best one's probability
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Makes tokens that were seen less likely, above 1
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    repetition_penalty: Option<f32>,
    /// Subtracted from a token's score for each time it was generated
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,
    /// Subtracted from a token's score once it was generated
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,
    /// Equal seeds give equal answers; -1 is a random one [default: -1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    seed: Option<OrUnset<u64>>,
}

/// A number, or -1 for none, as other tools spell it.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrUnset<T>(pub(super) Option<T>);

impl<T: FromStr> FromStr for OrUnset<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        Ok(Self(if text == "-1" { None } else { Some(text.parse()?) }))
    }
}

/// Prompts that are measured.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Suite {
    Canonical,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Strength {
    Low,
    Medium,
    High,
    Xhigh,
}

impl Cli {
    /// Reads the command line; ends the process with advice when it makes no sense.
    pub(super) fn read() -> Self {
        for warning in unknown_variables(&Self::command()) {
            print_line(&format!("warning: {warning}"));
        }
        // The configuration reads variables, so that each error names its variable.
        let mut command = without_variables(Self::command());
        let matches = command.try_get_matches_from_mut(std::env::args_os());
        let matches = matches.unwrap_or_else(|error| match error.kind() {
            // The help names variables.
            ErrorKind::DisplayHelp => Self::command().get_matches(),
            ErrorKind::DisplayVersion => error.exit(),
            _ => match foreign::advice(&command, std::env::args_os().skip(1)) {
                Some((name, advice)) => {
                    let subcommand = name.and_then(|name| command.find_subcommand(name).cloned());
                    let mut about = subcommand.unwrap_or_else(|| command.clone());
                    about.error(error.kind(), advice).exit()
                }
                None => error.exit(),
            },
        });
        if let Some(("chat", chat)) = matches.subcommand()
            && chat.contains_id("server")
        {
            // Variables that set a model up stay allowed beside --server, flags do not.
            let model = ModelFlags::augment_args(clap::Command::new("model"));
            let given = |arg: &&clap::Arg| {
                chat.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
            };
            if let Some(arg) = model.get_arguments().find(given) {
                let flag = arg.get_long().unwrap_or_default();
                let message = format!("--{flag} sets a model up here, --server talks to another's");
                command.error(ErrorKind::ArgumentConflict, message).exit();
            }
        }
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

impl ServeCommand {
    /// Which model is served.
    pub(super) fn model(&self) -> ModelFlags {
        self.model.clone().with_model(self.path.clone())
    }
}

impl BenchCommand {
    /// Which model is measured.
    pub(super) fn model(&self) -> ModelFlags {
        self.model.clone().with_model(self.path.clone())
    }
}

impl SamplingFlags {
    pub(super) fn message(&self) -> v1::Sampling {
        v1::Sampling {
            temperature: if self.greedy { Some(0.0) } else { self.temperature },
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            bias: Vec::new(),
            seed: self.seed.and_then(|seed| seed.0),
        }
    }
}

impl Strength {
    pub(super) fn message(self) -> v1::ReasoningStrength {
        match self {
            Self::Low => v1::ReasoningStrength::Low,
            Self::Medium => v1::ReasoningStrength::Medium,
            Self::High => v1::ReasoningStrength::High,
            Self::Xhigh => v1::ReasoningStrength::Xhigh,
        }
    }
}
