//! Pictures and video to embedding rows, a slice of work at a time.

use super::backend::Backend;
use super::sequence::ContentHash;
use crate::Result;

/// A picture cut into patches, ready for the tower.
#[derive(Clone, Debug)]
pub struct Patches {
    /// `[frames, grid_rows · grid_cols, patch vector]`, patch vectors laid out (t, c, y, x).
    pub values: Vec<f32>,
    /// Temporal groups: 1 for a picture.
    pub frames: usize,
    /// Patches down.
    pub grid_rows: usize,
    /// Patches across.
    pub grid_cols: usize,
    /// Identity for caching.
    pub hash: ContentHash,
}

/// A picture being encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EncodeId(pub u64);

/// The vision tower and projector.
pub trait VisionEncoder<B: Backend>: Send {
    /// Embedding rows that these patches become. Known before any work.
    fn rows(&self, patches: &Patches) -> usize;
    /// Starts a picture.
    fn begin(&mut self, patches: Patches) -> Result<EncodeId>;
    /// Runs a slice of layers, so that streams never stall. `Some` are the finished rows
    /// `[rows, hidden]`, already normed.
    fn advance(&mut self, id: EncodeId) -> Result<Option<B::Buf>>;
}
