//! The tower's tensors on the device. Matrices stay in the format of the file.

use muse_core::contract::{Backend, VisionSpec, WeightSource};
use muse_core::model::Loader;
use muse_core::{Error, Result};

/// All tensors but the table of positions, which the host interpolates.
pub(crate) struct Weights<B: Backend> {
    /// `[hidden, kernel_cols]`
    pub(crate) patch_kernel: B::Weight,
    /// Columns of the patch kernel: a whole patch vector, or one frame when the file has the sum
    /// over frames.
    pub(crate) kernel_cols: usize,
    pub(crate) pre_norm: LayerNorm<B>,
    pub(crate) layers: Vec<Layer<B>>,
    pub(crate) post_norm: LayerNorm<B>,
    /// `[projector, hidden · merge²]`, `[projector, projector]` and `[out, projector]`.
    pub(crate) projector: [B::Weight; 3],
}

/// One layer.
pub(crate) struct Layer<B: Backend> {
    pub(crate) attn_norm: LayerNorm<B>,
    /// `[hidden, hidden]`, as are `k`, `v` and `output`.
    pub(crate) q: Affine<B>,
    pub(crate) k: Affine<B>,
    pub(crate) v: Affine<B>,
    pub(crate) output: Affine<B>,
    pub(crate) ffn_norm: LayerNorm<B>,
    /// `[ffn, hidden]`
    pub(crate) up: Affine<B>,
    /// `[hidden, ffn]`
    pub(crate) down: Affine<B>,
}

/// A matrix `[out, in]` and its bias `[1, out]`.
pub(crate) struct Affine<B: Backend> {
    pub(crate) weight: B::Weight,
    pub(crate) bias: B::Buf,
}

/// Weight and bias of a layer norm, `[1, hidden]` each.
pub(crate) struct LayerNorm<B: Backend> {
    pub(crate) weight: B::Buf,
    pub(crate) bias: B::Buf,
}

/// Tensors of a layer, and beside the layers.
const TENSORS_PER_LAYER: usize = 16;
const OTHER_TENSORS: usize = 9;

impl<B: Backend> Weights<B> {
    /// Loads the tensors and the values of the table of positions.
    pub(crate) fn load(
        backend: &B,
        source: &dyn WeightSource,
        spec: &VisionSpec,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<(Self, Vec<f32>)> {
        let total = spec.full_layers.len() * TENSORS_PER_LAYER + OTHER_TENSORS;
        let mut loader = Loader::new(backend, source, total, progress);
        let &VisionSpec { hidden, projector, out, merge, table, .. } = spec;
        let kernel_cols = kernel_cols(source, spec)?;
        let weights = Self {
            patch_kernel: loader.matrix(PATCH_KERNEL, hidden, kernel_cols)?,
            kernel_cols,
            pre_norm: layer_norm(&mut loader, "v.pre_ln", hidden)?,
            layers: (0..spec.full_layers.len())
                .map(|index| Layer::load(&mut loader, spec, index))
                .collect::<Result<_>>()?,
            post_norm: layer_norm(&mut loader, "v.post_ln", hidden)?,
            projector: [
                loader.matrix("mm.0.weight", projector, hidden * merge * merge)?,
                loader.matrix("mm.1.weight", projector, projector)?,
                loader.matrix("mm.2.weight", out, projector)?,
            ],
        };
        let positions = loader.values("v.position_embd.weight", table.0 * table.1, hidden)?;
        Ok((weights, positions))
    }
}

impl<B: Backend> Layer<B> {
    fn load(loader: &mut Loader<'_, B>, spec: &VisionSpec, index: usize) -> Result<Self> {
        let (hidden, ffn) = (spec.hidden, spec.ffn);
        let mut affine = |part: &str, rows: usize, cols: usize| {
            let name = format!("v.blk.{index}.{part}");
            Ok(Affine {
                weight: loader.matrix(&format!("{name}.weight"), rows, cols)?,
                bias: loader.vector(&format!("{name}.bias"), rows)?,
            })
        };
        let [q, k, v, output] =
            ["attn_q", "attn_k", "attn_v", "attn_out"].map(|part| affine(part, hidden, hidden));
        let (up, down) = (affine("ffn_up", ffn, hidden)?, affine("ffn_down", hidden, ffn)?);
        let [attn_norm, ffn_norm] =
            ["ln1", "ln2"].map(|part| layer_norm(loader, &format!("v.blk.{index}.{part}"), hidden));
        let (attn_norm, ffn_norm) = (attn_norm?, ffn_norm?);
        Ok(Self { attn_norm, q: q?, k: k?, v: v?, output: output?, ffn_norm, up, down })
    }
}

fn layer_norm<B: Backend>(
    loader: &mut Loader<'_, B>,
    name: &str,
    hidden: usize,
) -> Result<LayerNorm<B>> {
    Ok(LayerNorm {
        weight: loader.vector(&format!("{name}.weight"), hidden)?,
        bias: loader.vector(&format!("{name}.bias"), hidden)?,
    })
}

const PATCH_KERNEL: &str = "v.patch_embd.weight";

/// Columns of the patch kernel: those of a patch vector, or of one of its frames when the file has
/// the sum over frames.
fn kernel_cols(source: &dyn WeightSource, spec: &VisionSpec) -> Result<usize> {
    let frame = 3 * spec.patch * spec.patch;
    let whole = spec.temporal * frame;
    let kernel = source.tensors().iter().find(|tensor| tensor.name == PATCH_KERNEL);
    match kernel.map(|kernel| kernel.cols) {
        Some(cols) if cols == frame || cols == whole => Ok(cols),
        found => Err(Error::Corrupt(format!(
            "the patch kernel {PATCH_KERNEL} has {} columns, but patches of {} frames of {frame} \
             values need {whole}, or {frame} when it is summed over the frames; fetch the file again",
            found.map_or("no".to_owned(), |cols| cols.to_string()),
            spec.temporal
        ))),
    }
}
