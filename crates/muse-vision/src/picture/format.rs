//! Which format a file has, by its first bytes, and what its header says of its size.

use muse_core::{Error, Result};

use super::{jpeg, webp};
use crate::limits::Limits;

/// A format of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// PNG, and the first frame of an APNG.
    Png,
    /// Baseline and progressive JPEG of 8 bits.
    Jpeg,
    /// WebP, lossy and lossless, and the first frame of an animation.
    WebP,
    /// The first frame of a GIF.
    Gif,
    /// Windows bitmap.
    Bmp,
}

impl Format {
    /// The format that a file's first bytes name. Names and media types of files are not asked:
    /// they are often wrong.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the bytes that were found and the formats that are accepted.
    pub fn of(bytes: &[u8]) -> Result<Self> {
        match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Ok(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Ok(Self::Jpeg),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Ok(Self::WebP),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Ok(Self::Gif),
            [b'B', b'M', ..] => Ok(Self::Bmp),
            _ => {
                let first = &bytes[..bytes.len().min(12)];
                Err(Error::Invalid(format!(
                    "no picture in a known format: {} bytes that begin with \"{}\"; \
                     PNG, JPEG, WebP, GIF and BMP are accepted",
                    bytes.len(),
                    first.escape_ascii()
                )))
            }
        }
    }

    /// The name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Png => "PNG",
            Self::Jpeg => "JPEG",
            Self::WebP => "WebP",
            Self::Gif => "GIF",
            Self::Bmp => "BMP",
        }
    }
}

/// What a header says of the samples, before anything is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The format.
    pub(crate) format: Format,
    /// Pixels across, before any rotation.
    pub(crate) width: u32,
    /// Pixels down, before any rotation.
    pub(crate) height: u32,
    /// Bytes that the decoder holds for a pixel beside its output.
    pub(crate) scratch_per_pixel: u64,
    /// Whether the samples are grey values of 16 bits.
    pub(crate) grey16: bool,
    /// Bits of red, green and blue in a bitmap of 16 bits a pixel.
    pub(crate) bits16: Option<[u32; 3]>,
}

/// Reads the header of a picture, and refuses sizes beyond the limits and files that are too short
/// for the size that they claim.
pub(crate) fn header(bytes: &[u8], limits: &Limits) -> Result<Header> {
    limits.check_len(bytes)?;
    let format = Format::of(bytes)?;
    let header = |width, height, scratch_per_pixel, grey16| Header {
        format,
        width,
        height,
        scratch_per_pixel,
        grey16,
        bits16: None,
    };
    let (header, min_bytes) = match format {
        Format::Png => {
            let [width, height] = png_size(bytes)?;
            let (depth, color) = (bytes[24], bytes[25]);
            let channels = [1, 0, 3, 1, 2, 0, 4].get(usize::from(color)).copied().unwrap_or(0);
            let row = 1 + (u64::from(width) * channels * u64::from(depth)).div_ceil(8);
            // Deflate makes at most 1,032 bytes of one.
            let min_bytes = row.saturating_mul(height.into()) / 1032;
            (header(width, height, 0, depth == 16 && color == 0), min_bytes)
        }
        Format::Jpeg => {
            let info = jpeg::info(bytes)?;
            let coefficients = if info.keeps_coefficients { 2 * info.components as u64 } else { 0 };
            let blocks = u64::from(info.width).div_ceil(8) * u64::from(info.height).div_ceil(8);
            // Every block takes at least a bit, of every component that has most of them.
            (header(info.width, info.height, coefficients, false), blocks / 8)
        }
        Format::WebP => {
            let info = webp::info(bytes)?;
            (header(info.width, info.height, 8, false), 0)
        }
        Format::Gif => {
            let [width, height] = gif_size(bytes)?;
            (header(width, height, 4, false), 0)
        }
        Format::Bmp => {
            let (width, height, min_bytes) = bmp_size(bytes)?;
            let bits16 = bmp_bits16(bytes);
            (Header { bits16, ..header(width, height, 0, false) }, min_bytes)
        }
    };
    limits.check_size(format.name(), header.width, header.height)?;
    if (bytes.len() as u64) < min_bytes {
        return Err(Error::Invalid(format!(
            "the {} is truncated: {} bytes, where {} x {} pixels take at least {min_bytes}",
            format.name(),
            bytes.len(),
            header.width,
            header.height
        )));
    }
    Ok(header)
}

/// An error for a file that ends before what it announces.
pub(crate) fn truncated(format: Format, bytes: &[u8], missing: &str) -> Error {
    Error::Invalid(format!(
        "the {} is truncated: it ends after {} bytes, before {missing}",
        format.name(),
        bytes.len()
    ))
}

fn png_size(bytes: &[u8]) -> Result<[u32; 2]> {
    let Some(chunk) = bytes.get(8..33) else {
        return Err(truncated(Format::Png, bytes, "the end of its header"));
    };
    if chunk[..8] != *b"\0\0\0\x0dIHDR" {
        return Err(Error::Invalid(format!(
            "the PNG begins with \"{}\" instead of the chunk IHDR of 13 bytes",
            chunk[..8].escape_ascii()
        )));
    }
    let number = |at: usize| u32::from_be_bytes(std::array::from_fn(|byte| chunk[at + byte]));
    Ok([number(8), number(12)])
}

fn gif_size(bytes: &[u8]) -> Result<[u32; 2]> {
    let Some(size) = bytes.get(6..10) else {
        return Err(truncated(Format::Gif, bytes, "the end of its header"));
    };
    Ok([0, 2].map(|at| u32::from(u16::from_le_bytes([size[at], size[at + 1]]))))
}

/// Width, height, and the bytes that a bitmap of this size has at least.
fn bmp_size(bytes: &[u8]) -> Result<(u32, u32, u64)> {
    let end = || truncated(Format::Bmp, bytes, "the end of its header");
    let number = |at: usize| -> Result<u32> {
        let bytes = bytes.get(at..at + 4).ok_or_else(end)?;
        Ok(u32::from_le_bytes(std::array::from_fn(|byte| bytes[byte])))
    };
    let (data, header_len) = (number(10)?, number(14)?);
    if header_len == 12 {
        let (size, planes) = (number(18)?, number(22)?);
        let (width, height) = (size & 0xffff, size >> 16);
        return Ok((width, height, data_len(data, width, height, planes >> 16)));
    }
    let (width, height) = (number(18)?, number(22)?.cast_signed().unsigned_abs());
    let (bits, compression) = (number(26)? >> 16, number(30)?);
    let min_bytes = match compression {
        // Runs of equal pixels: two bytes make at most 255.
        1 | 2 => u64::from(width) * u64::from(height) / 128,
        _ => data_len(data, width, height, bits),
    };
    Ok((width, height, min_bytes))
}

/// Bits of the channels of a bitmap with 16 bits a pixel, whose header is known to be complete.
fn bmp_bits16(bytes: &[u8]) -> Option<[u32; 3]> {
    if bytes[14] == 12 || bytes[28..30] != [16, 0] {
        return None;
    }
    // Without masks there are 5 bits each; of common masks, only that of green can have 6.
    let green = if bytes[30] == 3 { bytes.get(58..62)? } else { return Some([5; 3]) };
    Some([5, if green == [0xe0, 0x07, 0, 0] { 6 } else { 5 }, 5])
}

/// Bytes up to the end of uncompressed pixels, whose rows are padded to four bytes.
fn data_len(start: u32, width: u32, height: u32, bits: u32) -> u64 {
    let row = (u64::from(width) * u64::from(bits)).div_ceil(32) * 4;
    u64::from(start).saturating_add(row.saturating_mul(u64::from(height)))
}
