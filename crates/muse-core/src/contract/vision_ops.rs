//! The operations of a device that only the vision tower needs.

use std::ops::Range;

use super::backend::{Backend, Rope};
use crate::Result;

/// A device that can run the vision tower itself. One that cannot gets rows that another device
/// encoded.
///
/// Everything that [`Backend`] promises holds here too, batch invariance included.
pub trait VisionOps: Backend {
    /// `out = (x - mean(x)) / sqrt(var(x) + eps) · weight + bias` for each row, with the variance
    /// over the width, not over one less. `weight` and `bias` are `[1, cols]`.
    fn layer_norm(
        &self,
        x: &Self::Buf,
        rows: usize,
        weight: &Self::Buf,
        bias: &Self::Buf,
        eps: f32,
        out: &mut Self::Buf,
    ) -> Result<()>;
    /// `x = x + bias` for each row; `bias` is `[1, cols]`.
    fn add_bias(&self, x: &mut Self::Buf, rows: usize, bias: &Self::Buf) -> Result<()>;
    /// `x = gelu(x + bias)` with `gelu(x) = x · Φ(x)`, where Φ is the normal distribution function:
    /// the exact form, `x / 2 · (1 + erf(x / √2))`. `bias` is `[1, cols]`, none means zeros.
    fn gelu(&self, x: &mut Self::Buf, rows: usize, bias: Option<&Self::Buf>) -> Result<()>;
    /// Rotates every head of row `i` of `x` in place by `positions[i]`, `[across, down]`. Of the
    /// pairs `(j, j + D)` of a head of width `2 D`, with `D` being `rope.head_dim`, the first half
    /// turns by the position across and the second half by the position down, each with the
    /// frequencies of `rope`.
    fn rope_2d(&self, x: &mut Self::Buf, positions: &[[u32; 2]], rope: &Rope) -> Result<()>;
    /// Softmax attention without a mask inside ranges of positions: the queries `q`
    /// `[rows, heads · head_dim]` of each part attend to all of its keys. `kv` has as many K/V heads
    /// as there are query heads, and its KV block `i` holds the positions `64 i ..= 64 i + 63`.
    /// `scale` is the factor on `q · k`; `out` has the shape of `q`.
    fn attend_ranges(
        &self,
        q: &Self::Buf,
        kv: &Self::Kv,
        parts: &[RangeQueries],
        scale: f32,
        out: &mut Self::Buf,
    ) -> Result<()>;
    /// Lays groups of `group` rows of `x` `[_, cols]` side by side, channel by channel:
    /// `out[i][group · c + j] = x[rows[group · i + j]][c]`, `out` being `[_, group · cols]`.
    fn pixel_shuffle(
        &self,
        x: &Self::Buf,
        rows: &[u32],
        group: usize,
        out: &mut Self::Buf,
    ) -> Result<()>;
}

/// Consecutive queries that attend to the same keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeQueries {
    /// Number of queries.
    pub rows: usize,
    /// Positions of the keys, at least one.
    pub keys: Range<u32>,
}
