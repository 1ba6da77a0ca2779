//! Encoding of pictures and video into embedding rows, in slices of work.

use std::sync::Arc;

use super::backend::Backend;
use super::sequence::ContentHash;
use crate::Result;

/// A picture or video as patches, the input of the vision tower. Cloning shares the values.
#[derive(Clone, Debug)]
pub struct Patches {
    /// `[grid_t · grid_h · grid_w, 1176]`: the patches of each temporal group in raster order, each
    /// patch laid out (t 2, c 3, y 14, x 14). A full picture of 16,384 patches takes 77 MB.
    pub values: Arc<[f32]>,
    /// Temporal groups: 1 for a picture, one for each pair of frames of a video.
    pub grid_t: usize,
    /// Height in patches.
    pub grid_h: usize,
    /// Width in patches.
    pub grid_w: usize,
    /// Hash of the resized pixels and the grid, for prefix caching.
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
