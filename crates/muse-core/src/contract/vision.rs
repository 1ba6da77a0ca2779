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

impl Patches {
    /// Number of embedding rows when each square of `merge` by `merge` patches becomes one.
    pub fn rows(&self, merge: usize) -> usize {
        self.grid_t * self.grid_h * self.grid_w / (merge * merge)
    }
}

/// A request's interest in the rows of a picture: several of them may share one encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EncodeId(pub u64);

/// The vision tower and projector: patches to embedding rows.
///
/// A picture is encoded once for everybody who asks for the same [`Patches::hash`] while its rows
/// are remembered. Pictures are encoded one after the other, in the order in which they were begun,
/// so that the memory of one is enough.
pub trait VisionEncoder<B: Backend>: Send {
    /// Side of the square of patches that becomes one embedding row.
    fn merge(&self) -> usize;
    /// Number of embedding rows of these patches, known from the grid alone.
    fn rows(&self, patches: &Patches) -> usize {
        patches.rows(self.merge())
    }
    /// Asks for the rows of a picture. Nothing is computed yet.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] when the values do not fit the grid, or the grid does not fit the
    /// model; [`crate::Error::Unsupported`] for a video when the checkpoint can only encode
    /// pictures.
    fn begin(&mut self, patches: &Patches) -> Result<EncodeId>;
    /// Sends at most `budget` rows, at least 1, through a part of the tower, so that other requests
    /// are not held up, and returns the finished rows `[rows, hidden]`, already normed, once they
    /// are; `id` is then no longer known. The rows have the same bits for any budgets. The work
    /// goes to the picture that was begun first, which need not be that of `id`.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] when `id` is not known; [`crate::Error::Exhausted`] when there is
    /// no memory to encode the picture, which can be tried again; those of the device.
    fn advance(&mut self, id: EncodeId, budget: usize) -> Result<Option<Arc<B::Buf>>>;
    /// Drops a request. Its picture is no longer encoded unless another request asked for it.
    fn cancel(&mut self, id: EncodeId);
}
