//! Samples of any kind to RGB of 8 bits, and pictures turned as EXIF says.

use image::ColorType;
use image::metadata::Orientation;
use muse_core::{Error, Result};

use super::Picture;

/// What becomes of transparency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Alpha {
    /// It is dropped, and the colours under it are used as they are: what transformers does with
    /// pictures that it loads itself.
    #[default]
    Drop,
    /// The picture is laid over white, rounded as Pillow does it: what transformers does with
    /// opened pictures that are handed to its processor.
    OverWhite,
}

/// How grey values of 16 bits become 8. All other samples of 16 bits keep their high byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grey16 {
    /// They keep their high byte too.
    #[default]
    HighByte,
    /// Values above 255 become 255, as in Pillow and so in transformers: nearly every such picture
    /// is plain white then.
    Clip,
}

/// Packs decoded samples of `pixels` pixels to three bytes each.
pub(crate) fn to_rgb(
    mut samples: Vec<u8>,
    color: ColorType,
    alpha: Alpha,
    grey16: Option<Grey16>,
) -> Result<Vec<u8>> {
    let wide = match color {
        ColorType::L8 | ColorType::La8 | ColorType::Rgb8 | ColorType::Rgba8 => false,
        ColorType::L16 | ColorType::La16 | ColorType::Rgb16 | ColorType::Rgba16 => true,
        _ => return Err(Error::Invalid(format!("pictures of {color:?} samples are not accepted"))),
    };
    if wide {
        narrow(&mut samples, grey16 == Some(Grey16::Clip), color.has_alpha());
    }
    let over_white = alpha == Alpha::OverWhite;
    Ok(match color.channel_count() {
        1 => samples.iter().flat_map(|&grey| [grey; 3]).collect(),
        2 => {
            let (pairs, _) = samples.as_chunks::<2>();
            let grey = |&[grey, alpha]: &[u8; 2]| {
                [if over_white { on_white(grey, alpha) } else { grey }; 3]
            };
            pairs.iter().flat_map(grey).collect()
        }
        3 => samples,
        _ => {
            for pixel in 0..samples.len() / 4 {
                let [r, g, b, a]: [u8; 4] = std::array::from_fn(|c| samples[pixel * 4 + c]);
                let rgb =
                    [r, g, b].map(|value| if over_white { on_white(value, a) } else { value });
                samples[pixel * 3..][..3].copy_from_slice(&rgb);
            }
            samples.truncate(samples.len() / 4 * 3);
            samples
        }
    })
}

/// Samples of two bytes in the machine's order to one byte, in place. Clipping leaves alpha alone.
fn narrow(samples: &mut Vec<u8>, clip: bool, has_alpha: bool) {
    for sample in 0..samples.len() / 2 {
        let value = u16::from_ne_bytes([samples[sample * 2], samples[sample * 2 + 1]]);
        let grey = !(has_alpha && sample % 2 == 1);
        let byte = if clip && grey { value.min(255) } else { value >> 8 };
        samples[sample] = byte as u8;
    }
    samples.truncate(samples.len() / 2);
}

/// Channels that had 5 or 6 bits in the file, as Pillow widens them: `value · 255 / (2^bits - 1)`,
/// rounded down, where the decoder rounds to nearest.
pub(crate) fn widen(samples: &mut [u8], channels: usize, bits: [u32; 3]) {
    for pixel in samples.chunks_exact_mut(channels) {
        for (sample, bits) in pixel.iter_mut().zip(bits) {
            *sample = (u32::from(*sample >> (8 - bits)) * 255 / ((1 << bits) - 1)) as u8;
        }
    }
}

/// A value over opaque white, with seven bits of fraction before rounding.
fn on_white(value: u8, alpha: u8) -> u8 {
    let weight = u32::from(alpha) << 7;
    let sum = u32::from(value) * weight + 255 * ((255 << 7) - weight) + (0x80 << 7);
    ((((sum >> 8) + sum) >> 8) >> 7) as u8
}

/// Turns and mirrors a picture.
pub(crate) fn orient(picture: Picture, orientation: Orientation) -> Picture {
    let (height, width) = (picture.height, picture.width);
    // The pixel of the old picture that comes to row `y`, column `x` of the new one.
    let source = |y: usize, x: usize| match orientation {
        Orientation::NoTransforms => (y, x),
        Orientation::FlipHorizontal => (y, width - 1 - x),
        Orientation::Rotate180 => (height - 1 - y, width - 1 - x),
        Orientation::FlipVertical => (height - 1 - y, x),
        Orientation::Rotate90FlipH => (x, y),
        Orientation::Rotate90 => (height - 1 - x, y),
        Orientation::Rotate270FlipH => (height - 1 - x, width - 1 - y),
        Orientation::Rotate270 => (x, width - 1 - y),
    };
    if orientation == Orientation::NoTransforms {
        return picture;
    }
    let (new_height, new_width) =
        if swaps_sides(orientation) { (width, height) } else { (height, width) };
    let mut rgb = vec![0; picture.rgb.len()];
    for (y, row) in rgb.chunks_exact_mut(new_width * 3).enumerate() {
        for (x, pixel) in row.chunks_exact_mut(3).enumerate() {
            let (y, x) = source(y, x);
            pixel.copy_from_slice(&picture.rgb[(y * width + x) * 3..][..3]);
        }
    }
    Picture { height: new_height, width: new_width, rgb }
}

/// Whether height and width are exchanged.
pub(crate) fn swaps_sides(orientation: Orientation) -> bool {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    matches!(orientation, Rotate90 | Rotate90FlipH | Rotate270 | Rotate270FlipH)
}
