//! Frames of an animated WebP, drawn on their canvas as libwebp draws them.
//!
//! Each frame is decoded as a picture of its own. The decoder's own animation blends frames without
//! transparency by an alpha channel that they do not have.

use std::io::Cursor;

use image::ImageDecoder;
use image::codecs::webp::WebPDecoder;
use muse_core::Result;

use super::format::Format;
use super::unreadable;
use super::webp::{Frame, Info};

/// The canvas of an animation, before the first of its frames or after some.
pub(crate) struct Canvas<'a> {
    frames: std::vec::IntoIter<Frame<'a>>,
    width: usize,
    /// `[height, width, 4]`: red, green, blue, alpha.
    rgba: Vec<u8>,
    /// The frame whose place becomes transparent before the next.
    disposed: Option<Frame<'a>>,
}

impl<'a> Canvas<'a> {
    /// A transparent canvas.
    pub(crate) fn new(info: Info<'a>) -> Self {
        let (width, height) = (info.width as usize, info.height as usize);
        let rgba = vec![0; height * width * 4];
        Self { frames: info.frames.into_iter(), width, rgba, disposed: None }
    }

    /// Draws the next frame. Returns the canvas, or nothing after the last.
    pub(crate) fn next(&mut self) -> Option<Result<&[u8]>> {
        let frame = self.frames.next()?;
        if let Some(disposed) = self.disposed.take() {
            self.each_row(&disposed, |_, row| row.fill(0));
        }
        let pixels = match decode(&frame) {
            Ok(pixels) => pixels,
            Err(error) => return Some(Err(error)),
        };
        let line = frame.size[0] as usize * 4;
        self.each_row(&frame, |y, row| {
            let pixels = pixels[y * line..][..line].as_chunks::<4>().0;
            for (old, new) in row.as_chunks_mut::<4>().0.iter_mut().zip(pixels) {
                *old = if frame.blend { over(*new, *old) } else { *new };
            }
        });
        self.disposed = Some(frame).filter(|frame| frame.dispose);
        Some(Ok(&self.rgba))
    }

    /// Calls `each` with every row of the place of a frame.
    fn each_row(&mut self, frame: &Frame<'_>, each: impl Fn(usize, &mut [u8])) {
        let [x, y, width, height] =
            [frame.corner[0], frame.corner[1], frame.size[0], frame.size[1]].map(|n| n as usize);
        for row in 0..height {
            let start = ((y + row) * self.width + x) * 4;
            each(row, &mut self.rgba[start..start + width * 4]);
        }
    }
}

/// Decodes a frame to `[height, width, 4]`, as a file of its own.
fn decode(frame: &Frame<'_>) -> Result<Vec<u8>> {
    let mut file = b"RIFF\0\0\0\0WEBP".to_vec();
    if frame.chunks.starts_with(b"ALPH") {
        file.extend(b"VP8X\x0a\0\0\0\x10\0\0\0");
        for side in frame.size {
            file.extend(&(side - 1).to_le_bytes()[..3]);
        }
    }
    file.extend(frame.chunks);
    let content = (file.len() - 8) as u32;
    file[4..8].copy_from_slice(&content.to_le_bytes());
    let error = |error| unreadable(Format::WebP, &file, &error);
    let decoder = WebPDecoder::new(Cursor::new(&file)).map_err(error)?;
    let channels = usize::from(decoder.color_type().channel_count());
    let size = decoder.dimensions();
    if [size.0, size.1] != frame.size {
        return Err(muse_core::Error::Invalid(format!(
            "the WebP has a frame of {size:?} pixels where its header promises {:?}",
            frame.size
        )));
    }
    let mut pixels = vec![0; frame.size[0] as usize * frame.size[1] as usize * channels];
    decoder.read_image(&mut pixels).map_err(error)?;
    if channels == 3 {
        pixels = pixels.as_chunks::<3>().0.iter().flat_map(|&[r, g, b]| [r, g, b, 255]).collect();
    }
    Ok(pixels)
}

/// A pixel over another, neither multiplied by its alpha, rounded as libwebp does it.
fn over(new: [u8; 4], old: [u8; 4]) -> [u8; 4] {
    match new[3] {
        0 => return old,
        255 => return new,
        _ => {}
    }
    let alpha = u32::from(new[3]);
    let kept = (u32::from(old[3]) * (256 - alpha)) >> 8;
    let sum = alpha + kept;
    let scale = (1 << 24) / sum;
    let blend = |channel: usize| {
        let value = u32::from(new[channel]) * alpha + u32::from(old[channel]) * kept;
        ((u64::from(value) * u64::from(scale)) >> 24) as u8
    };
    [blend(0), blend(1), blend(2), sum as u8]
}
