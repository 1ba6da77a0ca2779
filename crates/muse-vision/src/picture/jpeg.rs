//! JPEG: the segments before the pixels, and decoding to RGB.

use image::metadata::Orientation;
use muse_core::{Error, Result};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::format::{Format, truncated};

/// What the segments before the first scan say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    /// Pixels across.
    pub(crate) width: u32,
    /// Pixels down.
    pub(crate) height: u32,
    /// 1 for grey, 3 for colour, 4 for CMYK and YCCK.
    pub(crate) components: usize,
    /// Whether the decoder holds all coefficients at once: progressive files, and four components.
    pub(crate) keeps_coefficients: bool,
    /// How the picture has to be turned.
    pub(crate) orientation: Orientation,
}

/// Reads the segments of a JPEG up to its first scan, and sees that it has an end.
///
/// # Errors
/// [`Error::Invalid`] when it is truncated, has no frame header or several, or one of a kind that
/// cannot be decoded.
pub(crate) fn info(bytes: &[u8]) -> Result<Info> {
    let mut info: Option<Info> = None;
    let mut orientation = Orientation::NoTransforms;
    let mut segments = Segments { bytes, at: 2 };
    let mut scanned = false;
    while let Some((marker, data)) = segments.next()? {
        match marker {
            0xc0..=0xc2 if info.is_some() => {
                return Err(Error::Invalid("the JPEG has more than one frame header".into()));
            }
            0xc0..=0xc2 => info = Some(frame_header(bytes, marker, data)?),
            0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Err(Error::Invalid(format!(
                    "the JPEG is of a rare kind (frame header {marker:#x}: lossless, hierarchical \
                     or arithmetic); baseline and progressive files are accepted"
                )));
            }
            0xe1 if !scanned => {
                let exif = data.strip_prefix(b"Exif\0\0").and_then(Orientation::from_exif_chunk);
                orientation = exif.unwrap_or(orientation);
            }
            0xda if info.is_none() => {
                return Err(Error::Invalid("the JPEG has a scan before its frame header".into()));
            }
            0xda => scanned = true,
            _ => {}
        }
    }
    match info {
        Some(info) if scanned => Ok(Info { orientation, ..info }),
        _ => Err(Error::Invalid("the JPEG has no frame header, or no scan of pixels".into())),
    }
}

fn frame_header(bytes: &[u8], marker: u8, data: &[u8]) -> Result<Info> {
    let &[precision, h1, h0, w1, w0, components, ..] = data else {
        return Err(truncated(Format::Jpeg, bytes, "the end of its frame header"));
    };
    if precision != 8 || ![1, 3, 4].contains(&components) {
        return Err(Error::Invalid(format!(
            "the JPEG has {components} components of {precision} bits; 1, 3 and 4 of 8 bits are \
             accepted"
        )));
    }
    Ok(Info {
        width: u16::from_be_bytes([w1, w0]).into(),
        height: u16::from_be_bytes([h1, h0]).into(),
        components: components.into(),
        keeps_coefficients: marker == 0xc2 || components == 4,
        orientation: Orientation::NoTransforms,
    })
}

/// Decodes to `[height, width, 3]`. Values of CMYK and YCCK are read as inverted, whether an Adobe
/// segment announces it or not, as Pillow does.
pub(crate) fn decode(bytes: &[u8], info: &Info) -> Result<Vec<u8>> {
    let options = DecoderOptions::default()
        .set_strict_mode(false)
        .set_max_width(info.width as usize)
        .set_max_height(info.height as usize)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    let pixels = decoder
        .decode()
        .map_err(|error| Error::Invalid(format!("the JPEG cannot be decoded: {error}")))?;
    let expected = info.width as usize * info.height as usize * 3;
    if pixels.len() != expected {
        return Err(Error::Invalid(format!(
            "the JPEG decodes to {} bytes, its header promises {expected}",
            pixels.len()
        )));
    }
    Ok(pixels)
}

/// Walks the segments of a file, and over the data of scans between them.
struct Segments<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Segments<'a> {
    /// Marker and data of the next segment; nothing at the end marker.
    fn next(&mut self) -> Result<Option<(u8, &'a [u8])>> {
        let end = || truncated(Format::Jpeg, self.bytes, "its end marker");
        loop {
            // Data of a scan holds 0xff only before 0x00 or a restart marker.
            let rest = self.bytes.get(self.at..).ok_or_else(end)?;
            self.at += rest.iter().position(|&byte| byte == 0xff).ok_or_else(end)? + 1;
            let marker = *self.bytes.get(self.at).ok_or_else(end)?;
            match marker {
                0x00 | 0x01 | 0xd0..=0xd8 => self.at += 1,
                0xff => {}
                0xd9 => return Ok(None),
                _ => {
                    let len = self.bytes.get(self.at + 1..self.at + 3).ok_or_else(end)?;
                    let len = usize::from(u16::from_be_bytes([len[0], len[1]]));
                    let data = self.bytes.get(self.at + 3..self.at + 1 + len);
                    self.at += 1 + len;
                    return data.map(|data| Some((marker, data))).ok_or_else(end);
                }
            }
        }
    }
}
