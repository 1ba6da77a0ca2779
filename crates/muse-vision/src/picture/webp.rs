//! The chunks of a WebP file: sizes of the picture and of all frames, checked before the decoder
//! sees them. The decoder allocates what a frame claims before it compares it with the picture.

use muse_core::{Error, Result};

use super::format::{Format, truncated};

/// What the chunks of a WebP file say.
#[derive(Debug, Default)]
pub(crate) struct Info<'a> {
    /// Pixels across.
    pub(crate) width: u32,
    /// Pixels down.
    pub(crate) height: u32,
    /// The frames of an animation. Empty without animation.
    pub(crate) frames: Vec<Frame<'a>>,
    /// EXIF data, if there is any.
    pub(crate) exif: Option<&'a [u8]>,
}

/// A frame of an animation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// Column and row of its first pixel.
    pub(crate) corner: [u32; 2],
    /// Pixels across and down.
    pub(crate) size: [u32; 2],
    /// Milliseconds that it is shown.
    pub(crate) duration_ms: u32,
    /// Whether its transparency lets the frame before show through.
    pub(crate) blend: bool,
    /// Whether its place becomes transparent before the next frame.
    pub(crate) dispose: bool,
    /// The chunks of its picture.
    pub(crate) chunks: &'a [u8],
}

/// Walks the chunks of a WebP file.
///
/// # Errors
/// [`Error::Invalid`] when a chunk reaches beyond the file, or a frame beyond the picture.
pub(crate) fn info(bytes: &[u8]) -> Result<Info<'_>> {
    let riff = little_endian(&bytes[4..8]) as usize;
    let content = bytes.get(12..riff.saturating_add(8)).ok_or_else(|| {
        truncated(Format::WebP, bytes, &format!("the end of its {riff} bytes of content"))
    })?;
    let mut info = Info::default();
    let (mut extended, mut empty) = (false, true);
    for (index, chunk) in Chunks(content).enumerate() {
        let (name, data) = chunk?;
        empty = false;
        match (&name, index) {
            (b"VP8X", 0) => {
                let data = header(data, 10, &name)?;
                info.width = 1 + little_endian(&data[4..7]);
                info.height = 1 + little_endian(&data[7..10]);
                extended = true;
            }
            (b"VP8 " | b"VP8L", 0) => [info.width, info.height] = frame_size(name, data)?,
            (b"VP8 " | b"VP8L", _) if extended => {
                let size = frame_size(name, data)?;
                if size != [info.width, info.height] {
                    return Err(mismatch(&info, size, [0, 0]));
                }
            }
            (b"ANMF", _) if extended => {
                let frame = animation_frame(data, &info)?;
                info.frames.push(frame);
            }
            (b"EXIF", _) => info.exif = Some(data.strip_prefix(b"Exif\0\0").unwrap_or(data)),
            (_, 0) => {
                return Err(Error::Invalid(format!(
                    "the WebP begins with a chunk \"{}\"; VP8, VP8L and VP8X are accepted",
                    name.escape_ascii()
                )));
            }
            _ => {}
        }
    }
    if empty {
        return Err(truncated(Format::WebP, bytes, "its first chunk"));
    }
    Ok(info)
}

/// Reads a frame, and checks its place and its parts.
fn animation_frame<'a>(data: &'a [u8], info: &Info<'_>) -> Result<Frame<'a>> {
    let place = header(data, 16, b"ANMF")?;
    let number = |at: usize| little_endian(&place[at..at + 3]);
    let (corner, size) = ([number(0) * 2, number(3) * 2], [number(6) + 1, number(9) + 1]);
    if corner[0] + size[0] > info.width || corner[1] + size[1] > info.height {
        return Err(mismatch(info, size, corner));
    }
    for chunk in Chunks(&data[16..]) {
        let (name, data) = chunk?;
        if matches!(&name, b"VP8 " | b"VP8L") {
            let found = frame_size(name, data)?;
            if found != size {
                return Err(mismatch(info, found, corner));
            }
        }
    }
    let (blend, dispose) = (place[15] & 2 == 0, place[15] & 1 != 0);
    let chunks = &data[16..];
    Ok(Frame { corner, size, duration_ms: number(12), blend, dispose, chunks })
}

fn mismatch(info: &Info<'_>, size: [u32; 2], corner: [u32; 2]) -> Error {
    Error::Invalid(format!(
        "the WebP contradicts itself: its picture has {} x {} pixels, a frame at {}, {} claims \
         {} x {}",
        info.width, info.height, corner[0], corner[1], size[0], size[1]
    ))
}

/// Width and height in the bit stream of a frame.
fn frame_size(name: [u8; 4], data: &[u8]) -> Result<[u32; 2]> {
    if name == *b"VP8L" {
        let data = header(data, 5, &name)?;
        let bits = little_endian(&data[1..5]);
        return Ok([1 + (bits & 0x3fff), 1 + (bits >> 14 & 0x3fff)]);
    }
    let data = header(data, 10, &name)?;
    Ok([6, 8].map(|at| little_endian(&data[at..at + 2]) & 0x3fff))
}

fn header<'a>(data: &'a [u8], len: usize, name: &[u8; 4]) -> Result<&'a [u8]> {
    data.get(..len).ok_or_else(|| {
        Error::Invalid(format!(
            "the WebP has a chunk \"{}\" of {} bytes, which takes at least {len}",
            name.escape_ascii(),
            data.len()
        ))
    })
}

/// A number of up to four bytes.
fn little_endian(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// Name and data of each chunk.
struct Chunks<'a>(&'a [u8]);

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<([u8; 4], &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.0.split_at_checked(8)?;
        let name = [head[0], head[1], head[2], head[3]];
        let len = little_endian(&head[4..8]) as usize;
        let Some(data) = rest.get(..len) else {
            self.0 = &[];
            return Some(Err(Error::Invalid(format!(
                "the WebP is truncated: a chunk \"{}\" claims {len} bytes, {} are left",
                name.escape_ascii(),
                rest.len()
            ))));
        };
        self.0 = rest.get(len + len % 2..).unwrap_or(&[]);
        Some(Ok((name, data)))
    }
}
