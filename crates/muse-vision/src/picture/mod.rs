//! Bytes of a picture file to RGB pixels, upright, within limits.

mod format;
mod jpeg;
pub(crate) mod rgb;
pub(crate) mod webp;
pub(crate) mod webp_frames;

use std::io::Cursor;

use image::codecs::bmp::BmpDecoder;
use image::codecs::gif::GifDecoder;
use image::codecs::png::PngDecoder;
use image::codecs::webp::WebPDecoder;
use image::metadata::Orientation;
use image::{ColorType, ImageDecoder, ImageError};
use muse_core::{Error, Result};

pub use format::Format;
use format::Header;
pub(crate) use format::{header, truncated};
pub use rgb::{Alpha, Grey16};
use rgb::{swaps_sides, to_rgb, widen};

use crate::limits::Limits;

/// Bytes that the PNG decoder may hold of chunks other than pixels, such as colour profiles.
pub(crate) const MAX_PNG_CHUNK_BYTES: u64 = 16 << 20;

/// Pixels of a picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Pixels down.
    pub height: usize,
    /// Pixels across.
    pub width: usize,
    /// `[height, width, 3]`: red, green, blue.
    pub rgb: Vec<u8>,
}

/// How pictures are decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// What a picture may cost.
    pub limits: Limits,
    /// What becomes of transparency.
    pub alpha: Alpha,
    /// How grey values of 16 bits become 8.
    pub grey16: Grey16,
}

/// Format and size of a picture, upright.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureInfo {
    /// The format of the file.
    pub format: Format,
    /// Pixels down, after it is turned as EXIF says.
    pub height: u32,
    /// Pixels across, after it is turned as EXIF says.
    pub width: u32,
}

impl PictureInfo {
    /// Reads the header of a file and decodes nothing: enough to choose a grid.
    ///
    /// # Errors
    /// [`Error::Invalid`] as for [`Picture::decode`], as far as the header shows it.
    pub fn read(bytes: &[u8], limits: &Limits) -> Result<Self> {
        let header = header(bytes, limits)?;
        let orientation = match header.format {
            Format::Jpeg => jpeg::info(bytes)?.orientation,
            format => open(bytes, format)?.1,
        };
        let (mut height, mut width) = (header.height, header.width);
        if swaps_sides(orientation) {
            (height, width) = (width, height);
        }
        Ok(Self { format: header.format, height, width })
    }
}

impl Picture {
    /// Decodes a PNG, JPEG, WebP, GIF or BMP file. Of an animation, this is the first frame. The
    /// picture is turned as its EXIF data says; colour profiles are ignored, as the reference does.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the file is of no known format, damaged, truncated or beyond the
    /// limits: what was found, and what is accepted.
    pub fn decode(bytes: &[u8], options: &DecodeOptions) -> Result<Self> {
        let header = header(bytes, &options.limits)?;
        let (height, width) = (header.height as usize, header.width as usize);
        let (rgb, orientation) = match header.format {
            Format::Jpeg => {
                let info = jpeg::info(bytes)?;
                check_memory(&options.limits, &header, 3, info.orientation)?;
                (jpeg::decode(bytes, &info)?, info.orientation)
            }
            Format::WebP if !webp::info(bytes)?.frames.is_empty() => {
                let info = webp::info(bytes)?;
                let exif = info.exif.and_then(Orientation::from_exif_chunk);
                let orientation = exif.unwrap_or(Orientation::NoTransforms);
                check_memory(&options.limits, &header, 8, orientation)?;
                let mut canvas = webp_frames::Canvas::new(info);
                let rgba = canvas.next().expect("there is a frame")?.to_vec();
                (to_rgb(rgba, ColorType::Rgba8, options.alpha, None)?, orientation)
            }
            format => {
                let (decoder, orientation) = open(bytes, format)?;
                let color = decoder.color_type();
                if decoder.dimensions() != (header.width, header.height) {
                    return Err(Error::Invalid(format!(
                        "the {} has {:?} pixels in one place of its header, {:?} in another",
                        format.name(),
                        decoder.dimensions(),
                        (header.width, header.height)
                    )));
                }
                let (samples, rgb) =
                    (u64::from(color.bytes_per_pixel()), color.channel_count() < 3);
                let held = samples + if rgb { 3 } else { 0 };
                check_memory(&options.limits, &header, held, orientation)?;
                let mut buffer = vec![0; height * width * samples as usize];
                decoder.read_image_boxed(&mut buffer).map_err(|e| unreadable(format, bytes, &e))?;
                if let Some(bits) = header.bits16 {
                    widen(&mut buffer, color.bytes_per_pixel().into(), bits);
                }
                let grey16 = header.grey16.then_some(options.grey16);
                (to_rgb(buffer, color, options.alpha, grey16)?, orientation)
            }
        };
        Ok(rgb::orient(Self { height, width, rgb }, orientation))
    }
}

/// Checks the memory that decoding takes: `held` bytes a pixel for samples and RGB, what the
/// decoder holds, and RGB once more if the sides are exchanged.
fn check_memory(
    limits: &Limits,
    header: &Header,
    held: u64,
    orientation: Orientation,
) -> Result<()> {
    let turned = if orientation == Orientation::NoTransforms { 0 } else { 3 };
    let per_pixel = (held + header.scratch_per_pixel).max(3 + turned);
    let pixels = u64::from(header.width) * u64::from(header.height);
    limits.check_memory(header.format.name(), pixels * per_pixel)
}

/// Opens a file of any format but JPEG, and reads how the picture has to be turned.
fn open(bytes: &[u8], format: Format) -> Result<(Box<dyn ImageDecoder + '_>, Orientation)> {
    let error = |error| unreadable(format, bytes, &error);
    let reader = Cursor::new(bytes);
    let mut turned = Orientation::NoTransforms;
    let decoder: Box<dyn ImageDecoder + '_> = match format {
        Format::Png => {
            let mut decoder = PngDecoder::with_limits(reader, png_limits()).map_err(error)?;
            let exif = decoder.exif_metadata().map_err(error)?;
            let exif = exif.and_then(|exif| Orientation::from_exif_chunk(&exif));
            turned = exif.unwrap_or(turned);
            Box::new(decoder)
        }
        Format::WebP => {
            let exif = webp::info(bytes)?.exif.and_then(Orientation::from_exif_chunk);
            turned = exif.unwrap_or(turned);
            Box::new(WebPDecoder::new(reader).map_err(error)?)
        }
        Format::Gif => {
            let mut decoder = GifDecoder::new(reader).map_err(error)?;
            let (width, height) = decoder.dimensions();
            decoder.set_limits(gif_limits(width, height)).map_err(error)?;
            Box::new(decoder)
        }
        Format::Bmp => Box::new(BmpDecoder::new(reader).map_err(error)?),
        Format::Jpeg => unreachable!("JPEG has a decoder of its own"),
    };
    Ok((decoder, turned))
}

/// Limits of the PNG decoder on all but the pixels.
fn png_limits() -> image::Limits {
    let mut limits = image::Limits::no_limits();
    limits.max_alloc = Some(MAX_PNG_CHUNK_BYTES);
    limits
}

/// Limits of the GIF decoder: a frame is no larger than the picture, and an animation holds three.
fn gif_limits(width: u32, height: u32) -> image::Limits {
    let mut limits = image::Limits::no_limits();
    let canvas =
        u64::from(width) * u64::from(height) * u64::from(ColorType::Rgba8.bytes_per_pixel());
    limits.max_alloc = Some(3 * canvas);
    limits
}

/// The error of a decoder, in a sentence.
pub(crate) fn unreadable(format: Format, bytes: &[u8], error: &ImageError) -> Error {
    let short = match error {
        ImageError::IoError(error) => error.kind() == std::io::ErrorKind::UnexpectedEof,
        _ => false,
    };
    if short {
        return truncated(format, bytes, "the end of its pixels");
    }
    Error::Invalid(format!("the {} cannot be decoded: {error}", format.name()))
}
