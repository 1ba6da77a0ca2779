//! The vision tower written down straightforwardly in `f64`, with wrong readings to choose from.

use std::collections::HashMap;

use muse_core::Result;
use muse_core::contract::{VisionSpec, WeightSource};
use muse_vision::{TableBorder, TableOrder};

use super::{Encoded, FRAME, Pixels, SIDE};

/// A wrong reading of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// GELU by the hyperbolic tangent.
    TanhGelu,
    /// The shuffle puts the four patches of a row one after the other.
    ShuffleChannelInner,
    /// The patches of a row in the order (x, y) instead of (y, x).
    ShuffleAcrossFirst,
    /// The first half of a head turns by the row.
    RopeHeightFirst,
    /// Pairs `(2j, 2j + 1)`.
    RopeInterleaved,
    /// Positions counted inside each window.
    RopeByWindow,
    /// Positions across from 1 to the number of rows, as on a grid of exchanged sides.
    RopeSwapped,
    /// Every layer attends to the whole picture.
    NoWindows,
    /// The last layer attends to windows as most others do.
    LastLayerInWindows,
    /// Windows tiled from the bottom right.
    WindowsFromTheEnd,
    /// Windows one patch smaller than the table.
    SmallerWindows,
    /// Patches stay in window order behind the last layer.
    WindowOrderKept,
    /// The table of positions with its corners on the corners of the grid.
    TableCorners,
    /// The nearest cell of the table.
    TableNearest,
    /// Layer norms with an epsilon of 1e-6.
    NormEps,
    /// The norm of rows with an epsilon of 1e-2: the projector's output is large.
    RowEps,
    /// Layer norms without their bias.
    NoNormBias,
    /// Patch vectors laid out (c, t, y, x).
    PatchChannelFirst,
    /// A GELU behind the last matrix of the projector, too.
    GeluAtTheEnd,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::TanhGelu,
        Self::ShuffleChannelInner,
        Self::ShuffleAcrossFirst,
        Self::RopeHeightFirst,
        Self::RopeInterleaved,
        Self::RopeByWindow,
        Self::RopeSwapped,
        Self::NoWindows,
        Self::LastLayerInWindows,
        Self::WindowsFromTheEnd,
        Self::SmallerWindows,
        Self::WindowOrderKept,
        Self::TableCorners,
        Self::TableNearest,
        Self::NormEps,
        Self::RowEps,
        Self::NoNormBias,
        Self::PatchChannelFirst,
        Self::GeluAtTheEnd,
    ];
}

/// Rows of values.
type Rows = Vec<Vec<f64>>;

/// The tower of a checkpoint.
pub struct ReferenceTower {
    spec: VisionSpec,
    tensors: HashMap<String, (usize, Vec<f64>)>,
    order: TableOrder,
    border: TableBorder,
    mutation: Option<Mutation>,
}

impl ReferenceTower {
    /// Reads the tensors.
    ///
    /// # Errors
    /// Those of the checkpoint.
    ///
    /// # Panics
    /// Without a vision tower.
    pub fn new(
        source: &dyn WeightSource,
        order: TableOrder,
        border: TableBorder,
        mutation: Option<Mutation>,
    ) -> Result<Self> {
        let spec = source.spec().vision.clone().expect("a vision tower");
        let named = source.tensors().iter().map(|tensor| &tensor.name);
        let ours = named.filter(|name| name.starts_with("v.") || name.starts_with("mm."));
        let tensors = ours
            .map(|name| {
                let view = source.weight(name)?;
                let values = view.to_f32().into_iter().map(f64::from).collect();
                Ok((name.clone(), (view.cols, values)))
            })
            .collect::<Result<_>>()?;
        Ok(Self { spec, tensors, order, border, mutation })
    }

    fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// What the tower makes of a picture.
    pub fn encode(&self, pixels: &Pixels) -> Encoded {
        let grid = (pixels.height / SIDE, pixels.width / SIDE);
        let mut x = self.embed(pixels, grid);
        let mut encoded = Encoded::default();
        let order = self.window_order(grid);
        let in_order = |x: &Rows| -> Rows { order.iter().map(|&(at, _)| x[at].clone()).collect() };
        encoded.values.insert("patches", flat(&in_order(&x)));
        x = in_order(&self.norm(&x, "v.pre_ln"));
        for layer in 0..self.spec.full_layers.len() {
            x = self.layer(layer, &x, &order, grid);
            if layer == 0 {
                encoded.values.insert("layer 0", flat(&x));
            }
        }
        x = self.norm(&x, "v.post_ln");
        if !self.has(Mutation::WindowOrderKept) {
            let mut restored = x.clone();
            order.iter().zip(&x).for_each(|(&(at, _), row)| restored[at].clone_from(row));
            x = restored;
        }
        let shuffled = self.shuffle(&x, grid);
        encoded.values.insert("shuffled", flat(&shuffled));
        let first = self.gelu(self.linear(&shuffled, "mm.0"));
        let second = self.gelu(self.linear(&first, "mm.1"));
        let mut projected = self.linear(&second, "mm.2");
        if self.has(Mutation::GeluAtTheEnd) {
            projected = self.gelu(projected);
        }
        encoded.values.insert("projected", flat(&projected));
        let eps = if self.has(Mutation::RowEps) { 1e-2 } else { 1e-5 };
        let normed = projected.into_iter().map(|row| {
            let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
            row.into_iter().map(|x| x / (mean + eps).sqrt()).collect()
        });
        encoded.rows = flat(&normed.collect());
        encoded
    }

    /// Patches by the kernel, with their positions.
    fn embed(&self, pixels: &Pixels, grid: (usize, usize)) -> Rows {
        let (width, kernel) = &self.tensors["v.patch_embd.weight"];
        let (sides, table) = (self.spec.table, &self.tensors["v.position_embd.weight"].1);
        let patch = |n: usize| {
            let (top, left) = (n / grid.1 * SIDE, n % grid.1 * SIDE);
            let value = |i: usize| {
                let (frame, channel) = (i / FRAME, i / (SIDE * SIDE) % 3);
                let channel = match self.has(Mutation::PatchChannelFirst) {
                    true => (frame * 3 + channel) / 2,
                    false => channel,
                };
                let (y, x) = (top + i / SIDE % SIDE, left + i % SIDE);
                f64::from(pixels.values[(y * pixels.width + x) * 3 + channel]) / 127.5 - 1.0
            };
            let values: Vec<f64> = (0..*width).map(value).collect();
            let mut row: Vec<f64> = kernel.chunks_exact(*width).map(|w| dot(w, &values)).collect();
            let (rows, cols) = match self.order {
                TableOrder::Straight => grid,
                TableOrder::Swapped => (grid.1, grid.0),
            };
            let down = self.cells(n / cols, rows, sides.0);
            let across = self.cells(n % cols, cols, sides.1);
            for (y, wy) in down {
                for &(x, wx) in &across {
                    let cell = &table[(y * sides.1 + x) * row.len()..];
                    row.iter_mut().zip(cell).for_each(|(out, value)| *out += wy * wx * value);
                }
            }
            row
        };
        (0..grid.0 * grid.1).map(patch).collect()
    }

    /// Cells of the table that coordinate `i` of `of` reads, with weights.
    fn cells(&self, i: usize, of: usize, cells: usize) -> Vec<(usize, f64)> {
        let (i, n, last) = (i as f64, of as f64, cells as i64 - 1);
        let at = match self.mutation {
            Some(Mutation::TableCorners) => i * last as f64 / (n - 1.0).max(1.0),
            Some(Mutation::TableNearest) => ((i + 0.5) * cells as f64 / n).floor(),
            _ => (i + 0.5) * cells as f64 / n - 0.5,
        };
        let floor = at.floor() as i64;
        let both = [(floor, floor as f64 + 1.0 - at), (floor + 1, at - floor as f64)];
        let inside = |(cell, weight): (i64, f64)| match self.border {
            TableBorder::Clamp => Some((cell.clamp(0, last) as usize, weight)),
            TableBorder::Zero => (0..=last).contains(&cell).then_some((cell as usize, weight)),
        };
        both.into_iter().filter_map(inside).collect()
    }

    /// For each place in window order the raster index of its patch and its window.
    fn window_order(&self, (height, width): (usize, usize)) -> Vec<(usize, (usize, usize))> {
        let mut side = self.spec.table;
        if self.has(Mutation::SmallerWindows) {
            side = (side.0 - 1, side.1 - 1);
        }
        let window = |at: usize| match self.has(Mutation::WindowsFromTheEnd) {
            true => {
                let (y, x) = (height - 1 - at / width, width - 1 - at % width);
                (height / side.0 - y / side.0, width / side.1 - x / side.1)
            }
            false => (at / width / side.0, at % width / side.1),
        };
        let mut order: Vec<_> = (0..height * width).map(|at| (at, window(at))).collect();
        order.sort_by_key(|&(at, window)| (window, at));
        order
    }

    fn layer(
        &self,
        layer: usize,
        x: &Rows,
        order: &[(usize, (usize, usize))],
        grid: (usize, usize),
    ) -> Rows {
        let part = |name: &str| format!("v.blk.{layer}.{name}");
        let h = self.norm(x, &part("ln1"));
        let [q, k, v] = ["attn_q", "attn_k", "attn_v"].map(|name| self.affine(&h, &part(name)));
        let [q, k] = [q, k].map(|rows| self.rope(rows, order, grid));
        let mut full = self.spec.full_layers[layer] || self.has(Mutation::NoWindows);
        if self.has(Mutation::LastLayerInWindows) && layer + 1 == self.spec.full_layers.len() {
            full = false;
        }
        let dim = self.spec.hidden / self.spec.heads;
        let attend = |i: usize| {
            let seen: Vec<usize> =
                (0..x.len()).filter(|&j| full || order[i].1 == order[j].1).collect();
            let head = |head: usize| {
                let cols = head * dim..(head + 1) * dim;
                let score = |&j: &usize| dot(&q[i][cols.clone()], &k[j][cols.clone()]);
                let scores: Vec<f64> =
                    seen.iter().map(|j| score(j) / (dim as f64).sqrt()).collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
                let sum: f64 = weights.iter().sum();
                let value = |col: usize| {
                    let terms = seen.iter().zip(&weights).map(|(&j, weight)| weight * v[j][col]);
                    terms.sum::<f64>() / sum
                };
                cols.clone().map(value).collect::<Vec<f64>>()
            };
            (0..self.spec.heads).flat_map(head).collect::<Vec<f64>>()
        };
        let attended: Rows = (0..x.len()).map(attend).collect();
        let x = add(x, &self.affine(&attended, &part("attn_out")));
        let h = self.norm(&x, &part("ln2"));
        let up = self.gelu(self.affine(&h, &part("ffn_up")));
        add(&x, &self.affine(&up, &part("ffn_down")))
    }

    fn rope(
        &self,
        rows: Rows,
        order: &[(usize, (usize, usize))],
        (height, width): (usize, usize),
    ) -> Rows {
        let dim = self.spec.hidden / self.spec.heads;
        let quarter = dim / 4;
        let turn = |(mut row, &(at, _)): (Vec<f64>, &(usize, (usize, usize)))| {
            let (mut y, mut x) = (at / width, at % width);
            match self.mutation {
                Some(Mutation::RopeByWindow) => {
                    (y, x) = (y % self.spec.table.0, x % self.spec.table.1);
                }
                Some(Mutation::RopeSwapped) => (y, x) = (at / height, at % height),
                Some(Mutation::RopeHeightFirst) => (y, x) = (x, y),
                _ => {}
            }
            for head in row.chunks_exact_mut(dim) {
                for j in 0..2 * quarter {
                    let position = if j < quarter { x + 1 } else { y + 1 } as f64;
                    let exponent = -((j % quarter) as f64) / quarter as f64;
                    let angle = position * f64::from(self.spec.rope_theta).powf(exponent);
                    let (a, b) = match self.has(Mutation::RopeInterleaved) {
                        true => (2 * j, 2 * j + 1),
                        false => (j, j + 2 * quarter),
                    };
                    let (sin, cos) = angle.sin_cos();
                    (head[a], head[b]) =
                        (head[a] * cos - head[b] * sin, head[b] * cos + head[a] * sin);
                }
            }
            row
        };
        rows.into_iter().zip(order).map(turn).collect()
    }

    fn shuffle(&self, x: &Rows, grid: (usize, usize)) -> Rows {
        let (merge, hidden) = (self.spec.merge, self.spec.hidden);
        let across = grid.1 / merge;
        let row = |n: usize| {
            let value = |i: usize| {
                let (channel, j) = match self.has(Mutation::ShuffleChannelInner) {
                    true => (i % hidden, i / hidden),
                    false => (i / (merge * merge), i % (merge * merge)),
                };
                let (dy, dx) = match self.has(Mutation::ShuffleAcrossFirst) {
                    true => (j % merge, j / merge),
                    false => (j / merge, j % merge),
                };
                x[(n / across * merge + dy) * grid.1 + n % across * merge + dx][channel]
            };
            (0..hidden * merge * merge).map(value).collect()
        };
        (0..x.len() / (merge * merge)).map(row).collect()
    }

    fn norm(&self, x: &Rows, name: &str) -> Rows {
        let weight = &self.tensors[&format!("{name}.weight")].1;
        let bias = &self.tensors[&format!("{name}.bias")].1;
        let scale = if self.has(Mutation::NoNormBias) { 0.0 } else { 1.0 };
        let eps = match self.has(Mutation::NormEps) {
            true => 1e-6,
            false => f64::from(self.spec.norm_eps),
        };
        let norm = |row: &Vec<f64>| {
            let mean = row.iter().sum::<f64>() / row.len() as f64;
            let squares: f64 = row.iter().map(|x| (x - mean) * (x - mean)).sum();
            let deviation = (squares / row.len() as f64 + eps).sqrt();
            let values = row.iter().zip(weight).zip(bias);
            values.map(|((x, w), b)| (x - mean) / deviation * w + scale * b).collect()
        };
        x.iter().map(norm).collect()
    }

    fn linear(&self, x: &Rows, name: &str) -> Rows {
        let (cols, weight) = &self.tensors[&format!("{name}.weight")];
        let row = |x: &Vec<f64>| weight.chunks_exact(*cols).map(|w| dot(w, x)).collect();
        x.iter().map(row).collect()
    }

    fn affine(&self, x: &Rows, name: &str) -> Rows {
        let bias = &self.tensors[&format!("{name}.bias")].1;
        let mut y = self.linear(x, name);
        y.iter_mut().for_each(|row| row.iter_mut().zip(bias).for_each(|(y, b)| *y += b));
        y
    }

    fn gelu(&self, x: Rows) -> Rows {
        let tanh = self.has(Mutation::TanhGelu);
        let gelu = |x: f64| match tanh {
            true => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
                0.5 * x * (1.0 + inner.tanh())
            }
            false => 0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)),
        };
        x.into_iter().map(|row| row.into_iter().map(gelu).collect()).collect()
    }
}

/// The error function by its power series, which converges everywhere; past 6 it is 1.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    // erf x = 2/√π · e^(-x²) · Σ 2ⁿ x^(2n+1) / (1 · 3 · … · (2n+1)): all terms have one sign.
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > 1e-17 * sum.abs() {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(a: &Rows, b: &Rows) -> Rows {
    let rows = a.iter().zip(b);
    rows.map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
}

fn flat(rows: &Rows) -> Vec<f32> {
    rows.iter().flatten().map(|&x| x as f32).collect()
}
