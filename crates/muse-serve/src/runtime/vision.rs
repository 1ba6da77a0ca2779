//! Encodes pictures into embedding rows, apart from a server.

use std::path::PathBuf;

use muse_core::Result;
use muse_core::contract::Patches;
use muse_vision::{TableBorder, TableOrder};

/// Which tower encodes, and how.
#[derive(Clone, Debug, Default)]
pub struct EncodeOptions {
    /// HuggingFace folder of the model or the projector's GGUF file; none means the embedded
    /// muse-nano.
    pub model: Option<PathBuf>,
    /// Which point of the table of positions a patch reads.
    pub table_order: TableOrder,
    /// What lies around the table of positions.
    pub table_border: TableBorder,
    /// Threads that compute; none means one a core.
    pub threads: Option<usize>,
    /// Multiplies by activations in f32 where the device would round them, and keeps K and V in
    /// f32.
    pub exact: bool,
}

/// Embedding rows of a picture, `[rows, hidden]`, as the text model reads them.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedPicture {
    /// Number of rows: tokens of the picture.
    pub rows: usize,
    /// Width of a row.
    pub hidden: usize,
    /// The values.
    pub values: Vec<f32>,
}

/// Encodes a picture on the CPU. `progress` is called with what is being done, how much is done and
/// how much there is.
///
/// # Errors
/// [`muse_core::Error::Invalid`] when the checkpoint has no vision tower or the patches do not fit
/// it, [`muse_core::Error::Corrupt`] for broken files, [`muse_core::Error::Exhausted`] when memory
/// does not suffice, [`muse_core::Error::Unsupported`] when this build lacks the CPU backend.
#[cfg(feature = "cpu")]
pub fn encode_picture(
    options: &EncodeOptions,
    patches: &Patches,
    progress: &mut super::Progress<'_>,
) -> Result<EncodedPicture> {
    use std::sync::Arc;

    use muse_core::contract::{Backend, KvType, WeightSource};
    use muse_cpu::{Cpu, CpuOptions};
    use muse_vision::{Tower, TowerOptions};
    use muse_weights::Checkpoint;

    /// Rows of a slice, between two reports of progress.
    const SLICE_ROWS: usize = 512;

    let checkpoint = match &options.model {
        Some(path) => Checkpoint::open(path)?,
        None => super::nano::target()?,
    };
    let cpu = Cpu::new(CpuOptions { threads: options.threads })?;
    let backend = Arc::new(if options.exact { cpu.exact() } else { cpu });
    let defaults = TowerOptions::default();
    let text = checkpoint.spec().text.as_ref();
    let tower_options = TowerOptions {
        table_order: options.table_order,
        table_border: options.table_border,
        kv: if options.exact { KvType::F32 } else { defaults.kv },
        row_norm_eps: text.map_or(defaults.row_norm_eps, |text| text.norm_eps),
    };
    let tower =
        Tower::load(Arc::clone(&backend), &checkpoint, tower_options, &mut |done, total| {
            progress("loading the vision tower", done, total);
        })?;
    checkpoint.check_unchanged()?;
    let (rows, hidden) = (tower.rows(patches), tower.spec().out);
    // Every patch goes through two stages of each layer, the patch kernel and the projector.
    let total = patches.grid_t * patches.grid_h * patches.grid_w;
    let total = total * (2 + 2 * tower.spec().full_layers.len());
    let (mut encoding, mut done) = (tower.start(patches.clone())?, 0);
    while !tower.advance(&mut encoding, SLICE_ROWS)? {
        done = (done + SLICE_ROWS).min(total);
        progress("encoding", done, total);
    }
    let mut values = vec![0.0; rows * hidden];
    backend.read(&encoding.into_rows(), 0, &mut values)?;
    Ok(EncodedPicture { rows, hidden, values })
}

/// Encodes nothing: this build lacks the CPU backend.
///
/// # Errors
/// [`muse_core::Error::Unsupported`], always.
#[cfg(not(feature = "cpu"))]
pub fn encode_picture(
    _: &EncodeOptions,
    _: &Patches,
    _: &mut super::Progress<'_>,
) -> Result<EncodedPicture> {
    Err(muse_core::Error::Unsupported(
        "this build has no CPU backend, which encodes pictures; build muse with the cargo feature cpu"
            .to_owned(),
    ))
}
