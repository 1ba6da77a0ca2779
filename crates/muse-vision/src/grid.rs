//! The grid of a picture: how many cells of 28 × 28 pixels it is stretched to. A cell becomes one
//! token, so the grid decides what a picture costs before anything of it is decoded.

use muse_core::{Error, Result};

use crate::patches::{MERGE_SIZE, PATCH_SIZE};

/// Side of a cell, in pixels: 2 × 2 patches, which the projector merges into one token.
pub const CELL_SIZE: usize = PATCH_SIZE * MERGE_SIZE;

/// Tokens that a picture may take, unless a smaller cap is asked for.
pub const MAX_IMAGE_TOKENS: usize = 4096;

/// Which grid is taken when several are equally near to the shape of the picture, as happens for
/// every square whose side is no multiple of 28.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TieRule {
    /// The grid with more cells, as llama.cpp does.
    #[default]
    Larger,
    /// The first in the order in which CPython (3.8 or newer, 64 bits) walks a set of pairs, as
    /// the processor of transformers does: 400 × 400 pixels get 14 cells a side, 512 × 512 get 19.
    Reference,
}

/// Cells of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Cells down.
    pub height: usize,
    /// Cells across.
    pub width: usize,
}

impl Grid {
    /// Chooses the grid of a picture of `height` × `width` pixels.
    ///
    /// The picture divided by 28, shrunk in proportion to `max_tokens` cells if it has more, is
    /// rounded up or down on each side. Of these up to four grids, the one with at least a cell a
    /// side and at most `max_tokens` cells is taken whose height / width is nearest to that of the
    /// picture; `ties` decides between equals. Only shapes too long for the cap (from about 1 : 4096
    /// on) have no such grid. Both sides are then rounded to at least 1, and the longer one is cut
    /// to the cap. The reference leaves that cut out and exceeds its own cap: it gives 28 × 200,000
    /// pixels 5,409 tokens, where this function gives 4,096.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a side or `max_tokens` is 0.
    pub fn choose(height: u32, width: u32, max_tokens: usize, ties: TieRule) -> Result<Self> {
        if height == 0 || width == 0 {
            return Err(Error::Invalid(format!(
                "the picture has {width} x {height} pixels (width x height); a side is at least 1"
            )));
        }
        if max_tokens == 0 {
            return Err(Error::Invalid("a picture takes at least 1 token, the cap is 0".into()));
        }
        let (height, width) = (f64::from(height), f64::from(width));
        let (mut rows, mut columns) = (height / CELL_SIZE as f64, width / CELL_SIZE as f64);
        let ratio = columns / rows;
        if rows * columns > max_tokens as f64 {
            rows = (max_tokens as f64 / ratio).sqrt();
            columns = rows * ratio;
        }
        let mut candidates = Vec::with_capacity(4);
        for side in [rows.floor(), rows.ceil()] {
            for other in [columns.floor(), columns.ceil()] {
                let pair = (side as usize, other as usize);
                if !candidates.contains(&pair) {
                    candidates.push(pair);
                }
            }
        }
        if ties == TieRule::Reference {
            candidates = in_set_order(&candidates);
        }
        candidates.retain(|&(a, b)| a >= 1 && b >= 1 && a * b <= max_tokens);
        let distance = |&(a, b): &(usize, usize)| (a as f64 / b as f64 - height / width).abs();
        let nearest = candidates.iter().map(distance).fold(f64::INFINITY, f64::min);
        candidates.retain(|pair| distance(pair) == nearest);
        let best = match ties {
            TieRule::Reference => candidates.first().copied(),
            // Of equally many cells, the first: height down before height up.
            TieRule::Larger => candidates
                .into_iter()
                .reduce(|best, next| if next.0 * next.1 > best.0 * best.1 { next } else { best }),
        };
        let (height, width) = best.unwrap_or_else(|| cut_to_cap(rows, columns, max_tokens));
        Ok(Self { height, width })
    }

    /// Tokens of the picture, without the two that enclose it.
    pub fn tokens(self) -> usize {
        self.height * self.width
    }

    /// Height in pixels after the stretch.
    pub fn pixel_height(self) -> usize {
        self.height * CELL_SIZE
    }

    /// Width in pixels after the stretch.
    pub fn pixel_width(self) -> usize {
        self.width * CELL_SIZE
    }

    /// Patches of one temporal group: four to a cell.
    pub fn patches(self) -> usize {
        self.tokens() * MERGE_SIZE * MERGE_SIZE
    }
}

/// The rounded sides, of which the longer one is cut until the cap holds.
fn cut_to_cap(rows: f64, columns: f64, max_tokens: usize) -> (usize, usize) {
    let round = |side: f64| (side.round_ties_even() as usize).clamp(1, max_tokens);
    let (height, width) = (round(rows), round(columns));
    if height > width {
        (height.min((max_tokens / width).max(1)), width)
    } else {
        (height, width.min((max_tokens / height).max(1)))
    }
}

/// The pairs in the order in which CPython walks a set that they were added to in this order.
///
/// Up to four pairs lie in a table of eight slots: a pair starts at the slot of its hash's low
/// bits, and where that is taken, follows a sequence that mixes in five more bits at a time.
fn in_set_order(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut table: [Option<(usize, usize)>; 8] = [None; 8];
    for &pair in pairs {
        let hash = tuple_hash(pair);
        let (mut perturb, mut slot) = (hash, hash & 7);
        while table[slot as usize].is_some() {
            perturb >>= 5;
            slot = slot.wrapping_mul(5).wrapping_add(1).wrapping_add(perturb) & 7;
        }
        table[slot as usize] = Some(pair);
    }
    table.into_iter().flatten().collect()
}

/// CPython's hash of a tuple of two small integers: xxHash's rounds over their values.
fn tuple_hash((a, b): (usize, usize)) -> u64 {
    const PRIMES: [u64; 3] =
        [11_400_714_785_074_694_791, 14_029_467_366_897_019_727, 2_870_177_450_012_600_261];
    let mut hash = PRIMES[2];
    for value in [a as u64, b as u64] {
        hash = hash.wrapping_add(value.wrapping_mul(PRIMES[1]));
        hash = hash.rotate_left(31).wrapping_mul(PRIMES[0]);
    }
    hash.wrapping_add(2 ^ PRIMES[2] ^ 3_527_539)
}
