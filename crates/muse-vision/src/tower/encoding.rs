//! A picture on its way through the tower, in slices of rows.
//!
//! A layer has two stages: keys and values of all rows, then attention and feed-forward. Both treat
//! rows alike, so that any slicing gives the same bits.

use std::ops::Range;

use muse_core::Result;
use muse_core::contract::{
    Backend, BlockTable, KV_BLOCK_SIZE, KvGroup, KvShape, KvType, Patches, Rope, SeqSlice,
    VisionOps, VisionSpec,
};

use super::Tower;
use super::weights::{Affine, LayerNorm};
use super::windows::WindowOrder;

/// Rows that run together at most: enough to read a layer's weights rarely, few enough that their
/// buffers are small.
const MAX_ROWS: usize = 512;

/// A picture or video being encoded.
pub struct Encoding<B: Backend> {
    patches: Patches,
    order: WindowOrder,
    /// The temporal group that is being encoded.
    group: usize,
    stage: Stage,
    /// Rows that went through the stage: patches, or embedding rows in the last one.
    done: usize,
    /// The residual stream in window order. `[patches of a group, hidden]`
    x: B::Buf,
    /// K and V of the layer; KV block `i` holds the positions from `64 i` in window order.
    kv: B::Kv,
    kv_blocks: Vec<u32>,
    scratch: Scratch<B>,
    /// Finished rows. `[rows, out]`
    rows: B::Buf,
}

/// What the rows go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Patch kernel, position and first norm.
    Patches,
    /// Keys and values of a layer.
    Keys(usize),
    /// The rest of a layer.
    Layer(usize),
    /// Last norm, shuffle and projector.
    Projector,
}

/// Values on the way through the tower, to compare with another implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intermediate {
    /// Patches with positions, before the first norm. `[patches, hidden]` in window order
    Patches,
    /// Output of a layer. `[patches, hidden]` in window order
    Layer(usize),
    /// Output of the last norm, shuffled. `[rows, hidden · merge²]` in raster order
    Shuffled,
    /// Output of the projector before the norm of rows. `[rows, out]` in raster order
    Projected,
}

/// Receives intermediate values: what they are, the first row of the temporal group, a buffer, and
/// how many of its rows they are.
pub(crate) type Observer<'a, B> =
    dyn FnMut(Intermediate, usize, &<B as Backend>::Buf, usize) -> Result<()> + 'a;

/// Buffers for the rows that run together.
struct Scratch<B: Backend> {
    /// Rows of the residual stream. `[rows, hidden]`, as are the following.
    x: B::Buf,
    normed: B::Buf,
    /// Output of a sub-layer, before it is added.
    branch: B::Buf,
    q: B::Buf,
    k: B::Buf,
    v: B::Buf,
    attn_output: B::Buf,
    /// `[rows, ffn]`
    ffn: B::Buf,
    /// `[rows, kernel columns]`
    patches: B::Buf,
    /// `[rows / merge², hidden · merge²]`
    shuffled: B::Buf,
    /// `[rows / merge², projector]`, as is the following.
    first: B::Buf,
    second: B::Buf,
    /// `[rows / merge², out]`, as is the following.
    projected: B::Buf,
    finished: B::Buf,
    /// Values of the host for as many patches.
    host: Vec<f32>,
    /// Rows of a copy.
    copy_rows: Vec<u32>,
}

/// Columns of the buffers with a row for each patch, and of those with a row for each embedding.
fn widths(spec: &VisionSpec, kernel_cols: usize) -> ([usize; 9], [usize; 5]) {
    let VisionSpec { hidden, ffn, projector, out, merge, .. } = *spec;
    (
        [hidden, hidden, hidden, hidden, hidden, hidden, hidden, ffn, kernel_cols],
        [hidden * merge * merge, projector, projector, out, out],
    )
}

impl<B: Backend> Scratch<B> {
    fn new(backend: &B, spec: &VisionSpec, kernel_cols: usize, patches: usize) -> Result<Self> {
        let (by_patch, by_row) = widths(spec, kernel_cols);
        let rows = patches.min(MAX_ROWS);
        let merged = rows.div_ceil(spec.merge * spec.merge);
        let [x, normed, branch, q, k, v, attn_output, ffn, patches] =
            by_patch.map(|cols| backend.alloc(rows, cols));
        let [shuffled, first, second, projected, finished] =
            by_row.map(|cols| backend.alloc(merged, cols));
        Ok(Self {
            x: x?,
            normed: normed?,
            branch: branch?,
            q: q?,
            k: k?,
            v: v?,
            attn_output: attn_output?,
            ffn: ffn?,
            patches: patches?,
            shuffled: shuffled?,
            first: first?,
            second: second?,
            projected: projected?,
            finished: finished?,
            host: Vec::new(),
            copy_rows: Vec::new(),
        })
    }
}

/// Bytes of the buffers of an encoding beside its rows.
pub(super) fn bytes(spec: &VisionSpec, kv: KvType, kernel_cols: usize, patches: &Patches) -> usize {
    let count = patches.grid_h * patches.grid_w;
    let (by_patch, by_row) = widths(spec, kernel_cols);
    let rows = count.min(MAX_ROWS);
    let merged = rows.div_ceil(spec.merge * spec.merge);
    let values = count * spec.hidden
        + rows * by_patch.iter().sum::<usize>()
        + merged * by_row.iter().sum::<usize>();
    let shape = kv_shape(spec, kv, count);
    size_of::<f32>() * values + shape.blocks * shape.block_bytes()
}

fn kv_shape(spec: &VisionSpec, kind: KvType, patches: usize) -> KvShape {
    KvShape {
        group: KvGroup::Full,
        blocks: patches.div_ceil(KV_BLOCK_SIZE),
        kv_heads: spec.heads,
        head_dim: spec.hidden / spec.heads,
        kind,
    }
}

impl<B: VisionOps> Tower<B> {
    /// Starts to encode patches, which [`Tower::check`] accepts.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when there is no memory, those of [`Tower::check`].
    pub fn start(&self, patches: Patches) -> Result<Encoding<B>> {
        self.check(&patches)?;
        let (backend, spec) = (&*self.backend, &self.spec);
        let order = WindowOrder::new(patches.grid_h, patches.grid_w, spec.table);
        let shape = kv_shape(spec, self.options.kv, order.len());
        Ok(Encoding {
            group: 0,
            stage: Stage::Patches,
            done: 0,
            x: backend.alloc(order.len(), spec.hidden)?,
            kv: backend.alloc_kv(shape)?,
            kv_blocks: (0..shape.blocks as u32).collect(),
            scratch: Scratch::new(backend, spec, self.weights.kernel_cols, order.len())?,
            rows: backend.alloc(self.rows(&patches), spec.out)?,
            order,
            patches,
        })
    }

    /// Sends at most `budget` rows, at least one embedding row's, through parts of the tower.
    /// Returns whether all are finished; [`Encoding::into_rows`] then has them.
    ///
    /// # Errors
    /// Those of the device, after which the encoding is lost.
    pub fn advance(&self, encoding: &mut Encoding<B>, budget: usize) -> Result<bool> {
        self.advance_observed(encoding, budget, &mut |_, _, _, _| Ok(()))
    }

    /// As [`Tower::advance`]; `observe` receives what the values are, their first row in the
    /// temporal group, a buffer, and how many of its rows they are.
    ///
    /// # Errors
    /// As [`Tower::advance`], and those of `observe`.
    pub fn advance_observed(
        &self,
        encoding: &mut Encoding<B>,
        budget: usize,
        observe: &mut Observer<'_, B>,
    ) -> Result<bool> {
        let merged = self.spec.merge * self.spec.merge;
        let mut left = budget.max(1);
        while left > 0 {
            if encoding.group == encoding.patches.grid_t {
                return Ok(true);
            }
            // An embedding row counts as the patches that it is made of.
            let (total, cost) = match encoding.stage {
                Stage::Projector => (encoding.order.len() / merged, merged),
                _ => (encoding.order.len(), 1),
            };
            let count = (left.min(MAX_ROWS) / cost).max(1).min(total - encoding.done);
            let range = encoding.done..encoding.done + count;
            match encoding.stage {
                Stage::Patches => self.embed_patches(encoding, range, observe)?,
                Stage::Keys(layer) => self.write_keys(encoding, layer, range)?,
                Stage::Layer(layer) => self.run_layer(encoding, layer, range, observe)?,
                Stage::Projector => self.project(encoding, range, observe)?,
            }
            left = left.saturating_sub(count * cost);
            encoding.done += count;
            if encoding.done == total {
                self.next_stage(encoding);
            }
        }
        Ok(encoding.group == encoding.patches.grid_t)
    }

    fn next_stage(&self, encoding: &mut Encoding<B>) {
        encoding.done = 0;
        encoding.stage = match encoding.stage {
            Stage::Patches => Stage::Keys(0),
            Stage::Keys(layer) => Stage::Layer(layer),
            Stage::Layer(layer) if layer + 1 < self.spec.full_layers.len() => {
                Stage::Keys(layer + 1)
            }
            Stage::Layer(_) => Stage::Projector,
            Stage::Projector => {
                encoding.group += 1;
                Stage::Patches
            }
        };
    }

    /// `x = LayerNorm(patches · kernel + position)`
    fn embed_patches(
        &self,
        encoding: &mut Encoding<B>,
        range: Range<usize>,
        observe: &mut Observer<'_, B>,
    ) -> Result<()> {
        let Encoding { patches, order, group, x, scratch, .. } = encoding;
        let (backend, weights, rows) = (&*self.backend, &self.weights, range.len());
        let width = patches.values.len() / (patches.grid_t * order.len());
        let values = &patches.values[*group * order.len() * width..][..order.len() * width];
        scratch.host.clear();
        for &patch in order.patches(range.clone()) {
            let patch = &values[patch as usize * width..][..weights.kernel_cols];
            scratch.host.extend_from_slice(patch);
        }
        backend.write(&mut scratch.patches, 0, &scratch.host)?;
        let into = &mut [(&weights.patch_kernel, &mut scratch.x)];
        backend.linear(&scratch.patches, rows, into)?;
        scratch.host.resize(rows * self.spec.hidden, 0.0);
        let positions = scratch.host.chunks_exact_mut(self.spec.hidden);
        for (&patch, position) in order.patches(range.clone()).iter().zip(positions) {
            let grid = (patches.grid_h, patches.grid_w);
            self.positions.interpolate(patch as usize, grid, position);
        }
        backend.write(&mut scratch.branch, 0, &scratch.host)?;
        backend.add(&mut scratch.x, rows, &scratch.branch)?;
        observe(Intermediate::Patches, range.start, &scratch.x, rows)?;
        self.norm(&scratch.x, rows, &weights.pre_norm, &mut scratch.normed)?;
        scratch.copy_rows.clear();
        scratch.copy_rows.extend(0..rows as u32);
        backend.copy(&scratch.normed, &scratch.copy_rows, x, range.start, 0)
    }

    /// Keys and values of some rows of a layer.
    fn write_keys(
        &self,
        encoding: &mut Encoding<B>,
        layer: usize,
        range: Range<usize>,
    ) -> Result<()> {
        let Encoding { order, x, kv, kv_blocks, scratch, .. } = encoding;
        let (backend, rows) = (&*self.backend, range.len());
        let weights = &self.weights.layers[layer];
        scratch.take(backend, x, range.clone())?;
        let Scratch { x, normed, k, v, .. } = scratch;
        self.norm(x, rows, &weights.attn_norm, normed)?;
        let into = &mut [(&weights.k.weight, &mut *k), (&weights.v.weight, &mut *v)];
        backend.linear(normed, rows, into)?;
        backend.add_bias(k, rows, &weights.k.bias)?;
        backend.add_bias(v, rows, &weights.v.bias)?;
        let positions: Vec<[u32; 2]> = order.positions(range.clone()).collect();
        backend.rope_2d(k, &positions, &self.rope())?;
        let blocks = BlockTable { full: kv_blocks, window: &[], window_base: 0 };
        let slice = SeqSlice { start: range.start as u32, len: rows, blocks };
        backend.write_kv(kv, &[slice], k, v)
    }

    /// `x += Wo attend(q, k, v)`, then `x += W2 gelu(W1 LayerNorm(x))`, for some rows of a layer.
    fn run_layer(
        &self,
        encoding: &mut Encoding<B>,
        layer: usize,
        range: Range<usize>,
        observe: &mut Observer<'_, B>,
    ) -> Result<()> {
        let Encoding { order, x: stream, kv, scratch, .. } = encoding;
        let (backend, rows) = (&*self.backend, range.len());
        let weights = &self.weights.layers[layer];
        scratch.take(backend, stream, range.clone())?;
        let Scratch { x, normed, branch, q, attn_output, ffn, copy_rows, .. } = scratch;
        self.norm(x, rows, &weights.attn_norm, normed)?;
        self.affine(normed, rows, &weights.q, q)?;
        let positions: Vec<[u32; 2]> = order.positions(range.clone()).collect();
        backend.rope_2d(q, &positions, &self.rope())?;
        let parts = order.attention(range.clone(), self.spec.full_layers[layer]);
        let scale = 1.0 / ((self.spec.hidden / self.spec.heads) as f32).sqrt();
        backend.attend_ranges(q, kv, &parts, scale, attn_output)?;
        self.affine(attn_output, rows, &weights.output, branch)?;
        backend.add(x, rows, branch)?;
        self.norm(x, rows, &weights.ffn_norm, normed)?;
        backend.linear(normed, rows, &mut [(&weights.up.weight, &mut *ffn)])?;
        backend.gelu(ffn, rows, Some(&weights.up.bias))?;
        self.affine(ffn, rows, &weights.down, branch)?;
        backend.add(x, rows, branch)?;
        observe(Intermediate::Layer(layer), range.start, x, rows)?;
        copy_rows.clear();
        copy_rows.extend(0..rows as u32);
        backend.copy(x, copy_rows, stream, range.start, 0)
    }

    /// `rows = rms(W3 gelu(W2 gelu(W1 shuffle(LayerNorm(x)))))` for some embedding rows.
    fn project(
        &self,
        encoding: &mut Encoding<B>,
        range: Range<usize>,
        observe: &mut Observer<'_, B>,
    ) -> Result<()> {
        let Encoding { order, group, x: stream, scratch, rows: finished_rows, .. } = encoding;
        let (backend, rows, merge) = (&*self.backend, range.len(), self.spec.merge);
        let patches = order.merged(range.clone(), merge);
        let Scratch { x, normed, shuffled, first, second, projected, finished, copy_rows, .. } =
            scratch;
        backend.copy(stream, &patches, x, 0, 0)?;
        self.norm(x, patches.len(), &self.weights.post_norm, normed)?;
        copy_rows.clear();
        copy_rows.extend(0..patches.len() as u32);
        backend.pixel_shuffle(normed, copy_rows, merge * merge, shuffled)?;
        observe(Intermediate::Shuffled, range.start, shuffled, rows)?;
        let [w1, w2, w3] = &self.weights.projector;
        backend.linear(shuffled, rows, &mut [(w1, &mut *first)])?;
        backend.gelu(first, rows, None)?;
        backend.linear(first, rows, &mut [(w2, &mut *second)])?;
        backend.gelu(second, rows, None)?;
        backend.linear(second, rows, &mut [(w3, &mut *projected)])?;
        observe(Intermediate::Projected, range.start, projected, rows)?;
        backend.rms_norm(projected, rows, None, self.options.row_norm_eps, finished)?;
        copy_rows.truncate(rows);
        let first_row = *group * order.len() / (merge * merge) + range.start;
        backend.copy(finished, copy_rows, finished_rows, first_row, 0)
    }

    fn norm(&self, x: &B::Buf, rows: usize, norm: &LayerNorm<B>, out: &mut B::Buf) -> Result<()> {
        let eps = self.spec.norm_eps;
        self.backend.layer_norm(x, rows, &norm.weight, &norm.bias, eps, out)
    }

    /// `out = x Wᵀ + bias`
    fn affine(&self, x: &B::Buf, rows: usize, affine: &Affine<B>, out: &mut B::Buf) -> Result<()> {
        self.backend.linear(x, rows, &mut [(&affine.weight, &mut *out)])?;
        self.backend.add_bias(out, rows, &affine.bias)
    }

    fn rope(&self) -> Rope {
        Rope { head_dim: self.spec.hidden / self.spec.heads / 2, theta: self.spec.rope_theta }
    }
}

impl<B: Backend> Scratch<B> {
    /// Copies rows of the residual stream.
    fn take(&mut self, backend: &B, stream: &B::Buf, range: Range<usize>) -> Result<()> {
        self.copy_rows.clear();
        self.copy_rows.extend(range.start as u32..range.end as u32);
        backend.copy(stream, &self.copy_rows, &mut self.x, 0, 0)
    }
}

impl<B: Backend> Encoding<B> {
    /// The finished rows, `[rows, out]`, normed.
    ///
    /// # Panics
    /// When [`Tower::advance`] has not finished them.
    pub fn into_rows(self) -> B::Buf {
        assert!(self.group == self.patches.grid_t, "rows are read before they are finished");
        self.rows
    }
}
