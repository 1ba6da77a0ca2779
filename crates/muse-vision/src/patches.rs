//! Pixels to patches: normalised, cut into (t, c, y, x) vectors, and hashed.

use std::sync::Arc;

use muse_core::contract::{ContentHash, Patches};
use muse_core::{Error, Result};
use sha2::{Digest, Sha256};

use crate::grid::Grid;
use crate::picture::Picture;
use crate::resize::stretch;

/// Side of a patch, in pixels.
pub const PATCH_SIZE: usize = 14;
/// Patches a side that the projector merges into one token.
pub const MERGE_SIZE: usize = 2;
/// Frames in a patch. A picture repeats itself.
pub const TEMPORAL_PATCH_SIZE: usize = 2;
/// Values of a patch: 2 frames, 3 channels, 14 rows of 14 pixels.
pub const PATCH_LEN: usize = TEMPORAL_PATCH_SIZE * SLAB;

/// Values that a patch has of one frame.
const SLAB: usize = 3 * PATCH_SIZE * PATCH_SIZE;

/// Stretches a picture to its grid and cuts it: `[grid.patches(), 1176]` values from -1 to 1, in
/// one temporal group whose two frames are equal.
pub fn picture_to_patches(picture: Picture, grid: Grid) -> Patches {
    let picture = stretch(picture, grid.pixel_height(), grid.pixel_width());
    cut(&[picture], grid)
}

/// Cuts the frames of a video, all of them stretched to the grid already: `[groups · grid.patches(),
/// 1176]` values, a group for each pair of frames. An odd last frame is repeated.
///
/// # Errors
/// [`Error::Invalid`] without frames, and when a frame has not the size of the grid.
pub fn frames_to_patches(frames: &[Picture], grid: Grid) -> Result<Patches> {
    let size = (grid.pixel_height(), grid.pixel_width());
    if frames.is_empty() {
        return Err(Error::Invalid("a video has at least one frame, this one has none".into()));
    }
    if let Some(other) = frames.iter().find(|frame| (frame.height, frame.width) != size) {
        return Err(Error::Invalid(format!(
            "a frame has {} x {} pixels, the grid of the video {} x {}",
            other.width, other.height, size.1, size.0
        )));
    }
    Ok(cut(frames, grid))
}

/// Cuts frames that have the size of the grid.
fn cut(frames: &[Picture], grid: Grid) -> Patches {
    let (grid_h, grid_w) = (grid.height * MERGE_SIZE, grid.width * MERGE_SIZE);
    let grid_t = frames.len().div_ceil(TEMPORAL_PATCH_SIZE);
    let mut values: Arc<[f32]> =
        std::iter::repeat_n(0.0, grid_t * grid_h * grid_w * PATCH_LEN).collect();
    let cells = Arc::get_mut(&mut values).expect("nobody shares it yet");
    let normal = normalised();
    for (group, patches) in cells.chunks_exact_mut(grid_h * grid_w * PATCH_LEN).enumerate() {
        for t in 0..TEMPORAL_PATCH_SIZE {
            let frame = &frames[(group * TEMPORAL_PATCH_SIZE + t).min(frames.len() - 1)];
            // A row of pixels belongs to `grid_w` patches, `row` down in each.
            for (y, line) in frame.rgb.chunks_exact(frame.width * 3).enumerate() {
                let (down, row) = (y / PATCH_SIZE, y % PATCH_SIZE);
                let band = &mut patches[down * grid_w * PATCH_LEN..][..grid_w * PATCH_LEN];
                let pixels = line.chunks_exact(PATCH_SIZE * 3);
                for (patch, pixels) in band.chunks_exact_mut(PATCH_LEN).zip(pixels) {
                    let slab = &mut patch[t * SLAB..][..SLAB];
                    for (c, channel) in slab.chunks_exact_mut(PATCH_SIZE * PATCH_SIZE).enumerate() {
                        let out = &mut channel[row * PATCH_SIZE..][..PATCH_SIZE];
                        for (value, pixel) in out.iter_mut().zip(pixels.chunks_exact(3)) {
                            *value = normal[usize::from(pixel[c])];
                        }
                    }
                }
            }
        }
    }
    Patches { values, grid_t, grid_h, grid_w, hash: content_hash(frames, grid) }
}

/// The value of each level: `(level / 255 - 0.5) / 0.5`, rounded as the reference rounds it. It
/// folds the division by 255 into mean and deviation: `(level - 127.5) / 127.5`.
fn normalised() -> [f32; 256] {
    std::array::from_fn(|level| (level as f32 - 127.5) / 127.5)
}

/// Hash of the grid and of the stretched pixels: pictures that the tower cannot tell apart are
/// equal, whatever files they came from.
fn content_hash(frames: &[Picture], grid: Grid) -> ContentHash {
    let mut hash = Sha256::new();
    hash.update(b"muse-vision patches 1\0");
    for size in [frames.len(), grid.height, grid.width] {
        hash.update((size as u64).to_le_bytes());
    }
    for frame in frames {
        hash.update(&frame.rgb);
    }
    let digest = hash.finalize();
    ContentHash(std::array::from_fn(|byte| digest[byte]))
}
