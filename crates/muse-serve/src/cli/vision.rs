//! `muse vision`: what a picture costs and becomes.

use std::io::{BufWriter, Read, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use muse_core::contract::Patches;
use muse_serve::runtime::{EncodeOptions, encode_picture};
use muse_vision::{
    DecodeOptions, Grid, MAX_IMAGE_TOKENS, Picture, TableBorder, TableOrder, TieRule,
    picture_to_patches,
};
use muse_weights::{NewFile, open_regular_file};
use serde_json::json;

use super::safetensors;
use super::terminal::{Progress, Screen};

#[derive(Args)]
pub(super) struct VisionCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Show the grid of a picture of some size, and the tokens that it takes
    Grid(GridCommand),
    /// Encode a picture into the embedding rows that the model reads in place of its tokens
    Encode(EncodeCommand),
}

#[derive(Args)]
struct EncodeCommand {
    /// PNG, JPEG, WebP, GIF (first frame) or BMP file
    #[arg(long, value_name = "FILE")]
    image: PathBuf,
    /// Write the rows, f32 [tokens, hidden], as safetensors
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// HuggingFace folder of the model, or the GGUF file of its vision tower (mmproj); the embedded
    /// muse-nano if absent
    #[arg(short, long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Tokens that the picture may take
    #[arg(long, value_name = "TOKENS", default_value_t = MAX_TOKENS)]
    image_max_tokens: NonZeroUsize,
    /// The grid among equally near ones: with more cells, or as transformers chooses
    #[arg(long, value_enum, default_value_t = Ties::Larger)]
    ties: Ties,
    /// Positions of pictures that are not square: of each patch, or sheared as transformers does
    #[arg(long, value_enum, default_value_t = Order::Straight)]
    table_order: Order,
    /// Positions at the border of large pictures: fading to zero, or clamped as llama.cpp does
    #[arg(long, value_enum, default_value_t = Border::Zero)]
    table_border: Border,
    /// Threads that compute [default: one a core]
    #[arg(short, long, value_name = "N")]
    threads: Option<usize>,
    /// Multiply by unrounded activations: slower, for comparing with references
    #[arg(long)]
    exact: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Order {
    Straight,
    Swapped,
}

#[derive(Clone, Copy, ValueEnum)]
enum Border {
    Zero,
    Clamp,
}

#[derive(Args)]
struct GridCommand {
    /// Width and height in pixels, such as 900x600
    size: Size,
    /// Tokens that the picture may take
    #[arg(long, value_name = "TOKENS", default_value_t = MAX_TOKENS)]
    image_max_tokens: NonZeroUsize,
    /// The grid among equally near ones: with more cells, or as transformers chooses
    #[arg(long, value_enum, default_value_t = Ties::Larger)]
    ties: Ties,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const MAX_TOKENS: NonZeroUsize = NonZeroUsize::new(MAX_IMAGE_TOKENS).expect("not 0");

#[derive(Clone, Copy, ValueEnum)]
enum Ties {
    Larger,
    Reference,
}

impl From<Ties> for TieRule {
    fn from(ties: Ties) -> Self {
        match ties {
            Ties::Larger => Self::Larger,
            Ties::Reference => Self::Reference,
        }
    }
}

/// Pixels across and down.
#[derive(Clone, Copy)]
struct Size {
    width: u32,
    height: u32,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let side = |text: &str| text.parse().ok().filter(|&side: &u32| side > 0);
        let sides = text.split_once(['x', 'X', '×']).map(|(w, h)| (side(w), side(h)));
        match sides {
            Some((Some(width), Some(height))) => Ok(Self { width, height }),
            _ => Err("expected width x height in pixels, both at least 1, such as 900x600".into()),
        }
    }
}

pub(super) fn run(command: &VisionCommand) -> Result<ExitCode> {
    match &command.action {
        Action::Grid(command) => grid(command),
        Action::Encode(command) => encode(command),
    }
}

fn encode(command: &EncodeCommand) -> Result<ExitCode> {
    let image = || format!("--image {}", command.image.display());
    let patches = patches(&command.image, command.image_max_tokens.get(), command.ties.into());
    let patches = patches.with_context(image)?;
    // Before the work, so that a file that cannot be written is known at once.
    let file = NewFile::create(&command.out);
    let file = file.with_context(|| format!("--out {}", command.out.display()))?;
    let options = EncodeOptions {
        model: command.model.clone(),
        table_order: match command.table_order {
            Order::Straight => TableOrder::Straight,
            Order::Swapped => TableOrder::Swapped,
        },
        table_border: match command.table_border {
            Border::Zero => TableBorder::Zero,
            Border::Clamp => TableBorder::Clamp,
        },
        threads: command.threads,
        exact: command.exact,
    };
    let mut progress = Progress::new();
    let encoded = encode_picture(&options, &patches, &mut |what, done, total| {
        progress.show(what, done as u64, total as u64);
    })?;
    progress.clear();
    let mut out = BufWriter::new(file);
    out.write_all(&safetensors::header("rows", [encoded.rows, encoded.hidden]))?;
    encoded.values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))?;
    out.into_inner().map_err(std::io::IntoInnerError::into_error)?.finish()?;
    let text = format!(
        "{} rows of {} values in {}\n",
        encoded.rows,
        encoded.hidden,
        command.out.display()
    );
    Screen::new().print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The patches of a picture file.
fn patches(path: &Path, max_tokens: usize, ties: TieRule) -> Result<Patches> {
    let options = DecodeOptions::default();
    let mut bytes = Vec::new();
    // A byte more than is accepted, so that a larger file is refused as such.
    let max_bytes = options.limits.max_bytes as u64 + 1;
    open_regular_file(path)?.take(max_bytes).read_to_end(&mut bytes)?;
    let picture = Picture::decode(&bytes, &options)?;
    let (height, width) = (picture.height as u32, picture.width as u32);
    let grid = Grid::choose(height, width, max_tokens, ties)?;
    Ok(picture_to_patches(picture, grid))
}

fn grid(command: &GridCommand) -> Result<ExitCode> {
    let Size { width, height } = command.size;
    let max_tokens = command.image_max_tokens.get();
    let grid = Grid::choose(height, width, max_tokens, command.ties.into())?;
    let text = match command.json {
        true => format!("{}\n", json(command.size, grid)),
        false => format!(
            "{width} x {height} pixels: grid of {} x {} cells, stretched to {} x {} pixels, \
             {} patches, {} tokens ({} in a prompt)\n",
            grid.width,
            grid.height,
            grid.pixel_width(),
            grid.pixel_height(),
            grid.patches(),
            grid.tokens(),
            prompt_tokens(grid)
        ),
    };
    Screen::new().print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn json(size: Size, grid: Grid) -> serde_json::Value {
    json!({
        "width": size.width,
        "height": size.height,
        "grid_width": grid.width,
        "grid_height": grid.height,
        "pixel_width": grid.pixel_width(),
        "pixel_height": grid.pixel_height(),
        "patches": grid.patches(),
        "tokens": grid.tokens(),
        "prompt_tokens": prompt_tokens(grid),
    })
}

/// Tokens with the two that enclose a picture in a prompt.
fn prompt_tokens(grid: Grid) -> usize {
    grid.tokens() + 2
}
