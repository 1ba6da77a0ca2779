//! How long each frame of an animation is shown, read from the headers of frames alone.

use muse_core::Result;

use crate::limits::Limits;
use crate::picture::{Format, truncated, webp};

/// Milliseconds of each frame; fewer than two for what is no animation.
pub(super) fn read(format: Format, bytes: &[u8], limits: &Limits) -> Result<Vec<u32>> {
    match format {
        Format::Gif => gif(bytes, limits),
        Format::WebP => {
            let frames = webp::info(bytes)?.frames;
            Ok(frames.iter().map(|frame| frame.duration_ms).collect())
        }
        Format::Png => png(bytes, limits),
        Format::Jpeg | Format::Bmp => Ok(Vec::new()),
    }
}

/// The frame control chunks of an APNG, if it has an animation control chunk.
fn png(bytes: &[u8], limits: &Limits) -> Result<Vec<u32>> {
    let end = || truncated(Format::Png, bytes, "its end chunk");
    let (mut rest, mut animated, mut durations) = (&bytes[8..], false, Vec::new());
    loop {
        let (head, tail) = rest.split_at_checked(8).ok_or_else(end)?;
        let len = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let data = tail.get(..len).ok_or_else(end)?;
        match (&head[4..], data) {
            (b"IEND", _) => break,
            (b"acTL", _) => animated = true,
            (b"fcTL", &[.., n1, n0, d1, d0, _, _]) if len == 26 => {
                let part = u32::from(u16::from_be_bytes([n1, n0])) * 1000;
                let whole = u32::from(u16::from_be_bytes([d1, d0]));
                durations.push(part / if whole == 0 { 100 } else { whole });
                limits.check_frames("PNG", durations.len(), 0)?;
            }
            _ => {}
        }
        rest = tail.get(len + 4..).ok_or_else(end)?;
    }
    Ok(if animated { durations } else { Vec::new() })
}

/// The image blocks of a GIF, each with the delay that a control block before it gives.
fn gif(bytes: &[u8], limits: &Limits) -> Result<Vec<u32>> {
    let end = || truncated(Format::Gif, bytes, "its trailer");
    let table_len = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
    let mut at = 13 + table_len(*bytes.get(10).ok_or_else(end)?);
    let (mut delay, mut durations) = (0, Vec::new());
    loop {
        match bytes.get(at).ok_or_else(end)? {
            0x21 => {
                if let Some(&[0xf9, 4, _, low, high]) = bytes.get(at + 1..at + 6) {
                    delay = u32::from(u16::from_le_bytes([low, high])) * 10;
                }
                at = skip_blocks(bytes, at + 2).ok_or_else(end)?;
            }
            0x2c => {
                let flags = *bytes.get(at + 9).ok_or_else(end)?;
                at = skip_blocks(bytes, at + 11 + table_len(flags)).ok_or_else(end)?;
                durations.push(std::mem::take(&mut delay));
                limits.check_frames("GIF", durations.len(), 0)?;
            }
            // The trailer, or bytes behind the last frame that nobody reads.
            _ => return Ok(durations),
        }
    }
}

/// The place behind a list of blocks, each with its length, up to an empty one.
fn skip_blocks(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let len = usize::from(*bytes.get(at)?);
        at += 1 + len;
        if len == 0 {
            return Some(at);
        }
    }
}
