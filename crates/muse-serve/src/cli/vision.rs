//! `muse vision`: what a picture costs and becomes, without a model.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use muse_vision::{Grid, MAX_IMAGE_TOKENS, TieRule};
use serde_json::json;

use super::terminal::Screen;

#[derive(Args)]
pub(super) struct VisionCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Show the grid of a picture of some size, and the tokens that it takes
    Grid(GridCommand),
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
    }
}

fn grid(command: &GridCommand) -> Result<ExitCode> {
    let Size { width, height } = command.size;
    let ties = match command.ties {
        Ties::Larger => TieRule::Larger,
        Ties::Reference => TieRule::Reference,
    };
    let grid = Grid::choose(height, width, command.image_max_tokens.get(), ties)?;
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
