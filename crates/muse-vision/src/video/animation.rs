//! Animated GIF, WebP and PNG: frames composited on their canvas, one at a time.

use std::io::Cursor;

use image::codecs::gif::GifDecoder;
use image::codecs::png::PngDecoder;
use image::{AnimationDecoder, ColorType, ImageDecoder};
use muse_core::{Error, Result};

use super::durations;
use crate::limits::Limits;
use crate::picture::webp_frames::Canvas;
use crate::picture::{
    DecodeOptions, Format, MAX_PNG_CHUNK_BYTES, Picture, header, rgb, unreadable, webp,
};

/// Milliseconds that a frame of no duration is shown, as browsers do.
const DEFAULT_DURATION_MS: u32 = 100;
/// Canvases of RGBA that decoding holds: the picture, the one before, a frame, and two copies.
const CANVASES: u64 = 5;

/// What the header and the frame headers of an animation say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnimationInfo {
    /// The format of the file.
    pub format: Format,
    /// Pixels down.
    pub height: u32,
    /// Pixels across.
    pub width: u32,
    /// Milliseconds that each frame is shown, at least 1.
    pub durations_ms: Vec<u32>,
}

impl AnimationInfo {
    /// Reads size and durations of an animation, and decodes nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the file is not an animation of several frames, is damaged, or has
    /// more frames or pixels than the limits allow.
    pub fn read(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let header = header(bytes, limits)?;
        let format = header.format;
        let canvas = u64::from(header.width) * u64::from(header.height);
        let mut durations_ms = durations::read(format, bytes, limits)?;
        if durations_ms.len() < 2 {
            return Err(Error::Invalid(format!(
                "the {} is no animation: {} frames; animated GIF, WebP and PNG are accepted",
                format.name(),
                durations_ms.len().max(1)
            )));
        }
        limits.check_frames(format.name(), durations_ms.len(), canvas)?;
        limits.check_memory(format.name(), canvas * 4 * CANVASES)?;
        for duration in &mut durations_ms {
            if *duration == 0 {
                *duration = DEFAULT_DURATION_MS;
            }
        }
        Ok(Self { format, height: header.height, width: header.width, durations_ms })
    }

    /// The mean rate, in frames a second.
    pub fn frames_per_second(&self) -> f64 {
        let total: u64 = self.durations_ms.iter().map(|&duration| u64::from(duration)).sum();
        self.durations_ms.len() as f64 * 1000.0 / total as f64
    }

    /// When each frame is shown first, in seconds.
    pub fn start_times_s(&self) -> Vec<f64> {
        let mut time = 0u64;
        let start = |&duration: &u32| {
            let start = time as f64 / 1000.0;
            time += u64::from(duration);
            start
        };
        self.durations_ms.iter().map(start).collect()
    }

    /// Decodes the frames with these indices, each above the one before, and hands them out in this order. Frames before the last one are decoded as
    /// well, for those that follow are drawn over them; only one is held.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the file is damaged, or not the one that was read.
    pub fn decode(
        &self,
        bytes: &[u8],
        indices: &[usize],
        options: &DecodeOptions,
        each: &mut dyn FnMut(Picture),
    ) -> Result<()> {
        let mut frames = self.frames(bytes)?;
        let mut at = 0;
        for &index in indices {
            assert!(index >= at, "indices ascend");
            let mut frame = None;
            while at <= index {
                frame = Some(frames.next().unwrap_or_else(|| {
                    Err(Error::Invalid(format!(
                        "the {} ends after {at} frames, its frame headers promise {}",
                        self.format.name(),
                        self.durations_ms.len()
                    )))
                })?);
                at += 1;
            }
            let rgba = frame.expect("at least one was decoded");
            let expected = self.height as usize * self.width as usize * 4;
            if rgba.len() != expected {
                return Err(Error::Invalid(format!(
                    "a frame of the {} decodes to {} bytes, where its header promises {expected}",
                    self.format.name(),
                    rgba.len()
                )));
            }
            let rgb = rgb::to_rgb(rgba, ColorType::Rgba8, options.alpha, None)?;
            each(Picture { height: self.height as usize, width: self.width as usize, rgb });
        }
        Ok(())
    }

    /// All frames as `[height, width, 4]`.
    fn frames<'a>(
        &self,
        bytes: &'a [u8],
    ) -> Result<Box<dyn Iterator<Item = Result<Vec<u8>>> + 'a>> {
        let format = self.format;
        let error = move |error| unreadable(format, bytes, &error);
        let reader = Cursor::new(bytes);
        let mut limits = image::Limits::no_limits();
        let canvas = u64::from(self.width) * u64::from(self.height) * 4;
        limits.max_alloc = Some(CANVASES * canvas + MAX_PNG_CHUNK_BYTES);
        let frames = match format {
            Format::WebP => {
                let mut canvas = Canvas::new(webp::info(bytes)?);
                return Ok(Box::new(std::iter::from_fn(move || {
                    canvas.next().map(|rgba| rgba.map(<[u8]>::to_vec))
                })));
            }
            Format::Gif => {
                let mut decoder = GifDecoder::new(reader).map_err(error)?;
                decoder.set_limits(limits).map_err(error)?;
                decoder.into_frames()
            }
            Format::Png => {
                let decoder = PngDecoder::with_limits(reader, limits).map_err(error)?;
                decoder.apng().map_err(error)?.into_frames()
            }
            Format::Jpeg | Format::Bmp => unreachable!("neither has frames"),
        };
        let rgba = |frame: image::Frame| frame.into_buffer().into_raw();
        Ok(Box::new(frames.map(move |frame| frame.map(rgba).map_err(error))))
    }
}
