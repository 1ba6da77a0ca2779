//! What an untrusted picture or animation may cost.

use muse_core::{Error, Result};

/// Bounds on pictures from outside. All are checked on headers, before any pixel is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file. Default: 64 MiB.
    pub max_bytes: usize,
    /// Pixels of the picture or of the canvas of an animation. Default: 64 Mi, such as
    /// 8192 × 8192.
    pub max_pixels: u64,
    /// Bytes that decoding may hold at once, as estimated from the header: samples as they are
    /// decoded, RGB, and the copy that a rotation needs. Default: 512 MiB. A picture of 64 Mi
    /// pixels takes 192 MiB as plain JPEG, 576 as progressive JPEG.
    pub max_decoded_bytes: u64,
    /// Frames of an animation. Default: 4,096.
    pub max_frames: usize,
    /// Pixels of all frames of an animation together, which bounds the time. Default: 1 Gi.
    pub max_animation_pixels: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 64 << 20,
            max_pixels: 64 << 20,
            max_decoded_bytes: 512 << 20,
            max_frames: 4096,
            max_animation_pixels: 1 << 30,
        }
    }
}

impl Limits {
    /// Refuses a file that is too long.
    pub(crate) fn check_len(&self, bytes: &[u8]) -> Result<()> {
        let found = bytes.len();
        if found <= self.max_bytes {
            return Ok(());
        }
        let max = self.max_bytes;
        Err(Error::Invalid(format!(
            "the picture has {found} bytes, at most {max} are accepted; send a smaller one"
        )))
    }

    /// Refuses a picture without pixels, or with too many.
    pub(crate) fn check_size(&self, name: &str, width: u32, height: u32) -> Result<()> {
        if width == 0 || height == 0 {
            return Err(Error::Invalid(format!(
                "the {name} has {width} x {height} pixels; a side is at least 1"
            )));
        }
        let (found, max) = (u64::from(width) * u64::from(height), self.max_pixels);
        if found <= max {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "the {name} has {width} x {height} = {found} pixels, at most {max} are accepted; \
             send a smaller one"
        )))
    }

    /// Refuses a picture whose decoding would take too much memory.
    pub(crate) fn check_memory(&self, name: &str, bytes: u64) -> Result<()> {
        let max = self.max_decoded_bytes;
        if bytes <= max {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "decoding the {name} would take {bytes} bytes of memory, at most {max} are accepted; \
             send a smaller picture"
        )))
    }

    /// Refuses an animation of too many frames, or of too many pixels in all.
    pub(crate) fn check_frames(&self, name: &str, frames: usize, canvas: u64) -> Result<()> {
        if frames > self.max_frames {
            let max = self.max_frames;
            return Err(Error::Invalid(format!(
                "the {name} has {frames} frames or more, at most {max} are accepted"
            )));
        }
        let (found, max) = (frames as u64 * canvas, self.max_animation_pixels);
        if found <= max {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "the {name} has {frames} frames of {canvas} pixels, {found} in all; \
             at most {max} are accepted"
        )))
    }
}
