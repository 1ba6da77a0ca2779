//! Encoding of pictures and video into embedding rows, in slices of work.

use super::backend::Backend;
use super::sequence::ContentHash;
use crate::Result;

/// A picture or video as patches, the input of the vision tower.
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
    /// Key for prefix caching.
    pub hash: ContentHash,
}

/// A picture being encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EncodeId(pub u64);

/// The vision tower and projector.
pub trait VisionEncoder<B: Backend>: Send {
    /// Number of embedding rows of these patches, known before they are encoded.
    fn rows(&self, patches: &Patches) -> usize;
    /// Starts encoding.
    fn begin(&mut self, patches: Patches) -> Result<EncodeId>;
    /// Runs some layers, so that other requests are not held up. Returns the finished rows
    /// `[rows, hidden]`, already normed, once they are.
    fn advance(&mut self, id: EncodeId) -> Result<Option<B::Buf>>;
}
