//! Video: which frames of it the model sees, when they were shown, and their patches.

mod animation;
mod durations;

use muse_core::contract::Patches;
use muse_core::{Error, Result};

pub use animation::AnimationInfo;

use crate::grid::{Grid, TieRule};
use crate::patches::{TEMPORAL_PATCH_SIZE, frames_to_patches};
use crate::picture::DecodeOptions;
use crate::resize::stretch;

/// Tokens that a pair of frames may take, unless a smaller cap is asked for.
pub const MAX_FRAME_TOKENS: usize = 144;

/// Which frames of a video the model sees. The defaults are those of the reference processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VideoOptions {
    /// Frames for each second of the video. Default: 2.
    pub frames_per_second: f64,
    /// Frames at most. Default: 96.
    pub max_frames: usize,
    /// Tokens of a pair of frames. Default: 144.
    pub max_frame_tokens: usize,
    /// The grid among equally near ones.
    pub ties: TieRule,
}

impl Default for VideoOptions {
    fn default() -> Self {
        Self {
            frames_per_second: 2.0,
            max_frames: 96,
            max_frame_tokens: MAX_FRAME_TOKENS,
            ties: TieRule::Larger,
        }
    }
}

/// A video as the model sees it.
#[derive(Clone, Debug)]
pub struct Video {
    /// Patches of all groups; a group is a pair of frames.
    pub patches: Patches,
    /// The grid of every frame. A group takes `grid.tokens()` tokens.
    pub grid: Grid,
    /// When the first frame of each group is shown, in seconds from the start.
    pub group_times_s: Vec<f64>,
}

impl Video {
    /// Decodes the frames that are sampled of an animated GIF, WebP or PNG, one at a time.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the file is no such animation, damaged, or beyond the limits.
    pub fn decode(bytes: &[u8], decode: &DecodeOptions, options: &VideoOptions) -> Result<Self> {
        let info = AnimationInfo::read(bytes, &decode.limits)?;
        let indices = sample_frames(info.durations_ms.len(), info.frames_per_second(), options)?;
        let grid = Grid::choose(info.height, info.width, options.max_frame_tokens, options.ties)?;
        let mut frames = Vec::with_capacity(indices.len());
        info.decode(bytes, &indices, decode, &mut |picture| {
            frames.push(stretch(picture, grid.pixel_height(), grid.pixel_width()));
        })?;
        let starts = info.start_times_s();
        let group_times_s =
            indices.iter().step_by(TEMPORAL_PATCH_SIZE).map(|&index| starts[index]).collect();
        Ok(Self { patches: frames_to_patches(&frames, grid)?, grid, group_times_s })
    }
}

/// Indices of the frames that are sampled of `frames` frames, shown at `rate` frames a second: as
/// many as `options` ask for in that time, an even number where the video has two, spread evenly
/// from the first to the last and rounded down, in single precision as the reference computes it.
///
/// # Errors
/// [`Error::Invalid`] without frames, or when a rate or a maximum is not positive.
pub fn sample_frames(frames: usize, rate: f64, options: &VideoOptions) -> Result<Vec<usize>> {
    let positive = |rate: f64| rate.is_finite() && rate > 0.0;
    if frames == 0 || options.max_frames == 0 {
        return Err(Error::Invalid(format!(
            "a video of {frames} frames, of which at most {} are seen; both are at least 1",
            options.max_frames
        )));
    }
    if !positive(rate) || !positive(options.frames_per_second) {
        return Err(Error::Invalid(format!(
            "a video of {rate} frames a second, of which {} are seen; both are above 0",
            options.frames_per_second
        )));
    }
    let wanted = frames as f64 * options.frames_per_second / rate;
    let count = (wanted as usize).min(options.max_frames).min(frames);
    let even = count / TEMPORAL_PATCH_SIZE * TEMPORAL_PATCH_SIZE;
    let count = even.max(TEMPORAL_PATCH_SIZE).min(frames);
    let last = (frames - 1) as f32;
    let step = last / (count - 1).max(1) as f32;
    let spread = |index: usize| match index < count / 2 || count == 1 {
        true => step * index as f32,
        // From the end, so that the last index is exact.
        false => last - step * (count - 1 - index) as f32,
    };
    Ok((0..count).map(|index| spread(index) as usize).collect())
}
