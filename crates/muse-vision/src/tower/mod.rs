//! The vision tower and projector over any [`VisionOps`] device: patches to embedding rows.

mod encoding;
mod positions;
mod weights;
mod windows;

use std::sync::Arc;

use muse_core::contract::{KvType, Patches, VisionOps, VisionSpec, WeightSource};
use muse_core::{Error, Result};

pub use encoding::{Encoding, Intermediate};
pub use positions::{TableBorder, TableOrder};

use positions::PositionTable;
use weights::Weights;

/// What the files of a checkpoint leave open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TowerOptions {
    /// Which point of the table of positions a patch reads.
    pub table_order: TableOrder,
    /// What lies around the table of positions.
    pub table_border: TableBorder,
    /// How K and V are stored while a picture is encoded.
    pub kv: KvType,
    /// Epsilon of the norm of finished rows: the text model's.
    pub row_norm_eps: f32,
}

impl Default for TowerOptions {
    fn default() -> Self {
        Self {
            table_order: TableOrder::default(),
            table_border: TableBorder::default(),
            kv: KvType::default(),
            row_norm_eps: 1e-5,
        }
    }
}

/// The tower and the projector. It holds weights; the state of a picture is an [`Encoding`].
pub struct Tower<B: VisionOps> {
    backend: Arc<B>,
    spec: VisionSpec,
    options: TowerOptions,
    weights: Weights<B>,
    positions: PositionTable,
}

impl<B: VisionOps> Tower<B> {
    /// Loads the tower of a checkpoint; `progress` is called with `(loaded, total)` tensors.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the checkpoint has no vision tower, [`Error::Corrupt`] when its
    /// tensors do not fit its settings, those of the device.
    pub fn load(
        backend: Arc<B>,
        source: &dyn WeightSource,
        options: TowerOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let Some(spec) = source.spec().vision.clone() else {
            return Err(Error::Invalid(
                "the checkpoint has no vision tower: use a HuggingFace folder of the model, or the \
                 projector file (mmproj) that belongs to it"
                    .to_owned(),
            ));
        };
        check(&spec)?;
        let (weights, table) = Weights::load(&*backend, source, &spec, progress)?;
        let positions =
            PositionTable::new(table, spec.table, options.table_order, options.table_border);
        Ok(Self { backend, spec, options, weights, positions })
    }

    /// Description of the tower.
    pub fn spec(&self) -> &VisionSpec {
        &self.spec
    }

    /// Number of embedding rows of patches.
    pub fn rows(&self, patches: &Patches) -> usize {
        patches.rows(self.spec.merge)
    }

    /// Bytes of the device's memory that a picture takes while it is encoded, its rows included and
    /// its patches not. K and V are 4 of 10 parts of it.
    pub fn encoding_bytes(&self, patches: &Patches) -> usize {
        encoding::bytes(&self.spec, self.options.kv, self.weights.kernel_cols, patches)
            + self.rows(patches) * self.spec.out * size_of::<f32>()
    }

    /// Refuses patches that the tower cannot encode.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the values do not fit the grid, or the grid does not fit the model;
    /// [`Error::Unsupported`] for differing frames when the checkpoint has only the sum of the patch
    /// kernel over frames.
    pub fn check(&self, patches: &Patches) -> Result<()> {
        let VisionSpec { merge, patch, temporal, .. } = self.spec;
        let &Patches { grid_t, grid_h, grid_w, ref values, .. } = patches;
        let grid = format!("{grid_t} x {grid_h} x {grid_w} patches");
        if grid_t == 0 || grid_h == 0 || grid_w == 0 {
            return Err(Error::Invalid(format!("{grid}; a picture has at least one row")));
        }
        if !grid_h.is_multiple_of(merge) || !grid_w.is_multiple_of(merge) {
            return Err(Error::Invalid(format!(
                "a grid of {grid}; {merge} x {merge} patches make a row, so that both sides must be \
                 multiples of {merge}"
            )));
        }
        let (frame, count) = (3 * patch * patch, grid_t.saturating_mul(grid_h * grid_w));
        let width = temporal * frame;
        if values.len() != count.saturating_mul(width) {
            return Err(Error::Invalid(format!(
                "{} values for {grid}; each has {temporal} frames of 3 x {patch} x {patch} values, \
                 {width} in all",
                values.len()
            )));
        }
        let differ = |patch: &[f32]| patch.chunks_exact(frame).any(|at| *at != patch[..frame]);
        if self.weights.kernel_cols < width && values.chunks_exact(width).any(differ) {
            return Err(Error::Unsupported(
                "a video, but the projector file has the patch kernel summed over two frames, which \
                 is enough for pictures only; use the HuggingFace folder of the model"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

/// Refuses configurations that the operations cannot compute.
fn check(spec: &VisionSpec) -> Result<()> {
    let VisionSpec { hidden, ffn, heads, patch, temporal, merge, table, projector, out, .. } =
        *spec;
    let sizes = [hidden, ffn, heads, patch, temporal, merge, table.0, table.1, projector, out];
    if sizes.contains(&0) || spec.full_layers.is_empty() {
        return Err(Error::Corrupt(format!(
            "vision tower: hidden, ffn, heads, patch, temporal, merge, table, projector and output \
             are {sizes:?} in {} layers; none may be 0, the configuration is damaged",
            spec.full_layers.len()
        )));
    }
    if !hidden.is_multiple_of(4 * heads) {
        return Err(Error::Corrupt(format!(
            "vision tower: {heads} heads of a width of {hidden} in all; the width of a head must be a \
             multiple of 4, the configuration is damaged"
        )));
    }
    Ok(())
}
