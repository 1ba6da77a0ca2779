//! The stretch of a picture to its grid, bit-equal to the reference processor: torchvision's
//! Lanczos with antialias on 8-bit pixels, horizontal first, then vertical, 8 bits in between.
//!
//! `fast_image_resize` computes each pass with the same 16-bit fixed-point weights. It would do the
//! vertical pass first, and clipping to 8 bits between the passes makes the order visible; so it is
//! called once for each direction.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use crate::picture::Picture;

/// Stretches a picture to `width` × `height` pixels, neither of them 0. A direction that keeps its
/// size is not filtered, and without a change the picture comes back as it is.
pub fn stretch(picture: Picture, height: usize, width: usize) -> Picture {
    let across = one_direction(picture, |old| (old.height, width));
    one_direction(across, |old| (height, old.width))
}

fn one_direction(picture: Picture, size: impl Fn(&Picture) -> (usize, usize)) -> Picture {
    let (height, width) = size(&picture);
    if (height, width) == (picture.height, picture.width) {
        return picture;
    }
    let side = |pixels: usize| u32::try_from(pixels).expect("a side below 2^32");
    let mut rgb = vec![0; height * width * 3];
    let source =
        ImageRef::new(side(picture.width), side(picture.height), &picture.rgb, PixelType::U8x3);
    let source = source.expect("three bytes for each pixel");
    let target = Image::from_slice_u8(side(width), side(height), &mut rgb, PixelType::U8x3);
    let mut target = target.expect("three bytes for each pixel");
    let lanczos = ResizeAlg::Convolution(FilterType::Lanczos3);
    let options = ResizeOptions::new().resize_alg(lanczos);
    Resizer::new()
        .resize(&source, &mut target, &options)
        .expect("both have the same kind of pixels, and the whole source is used");
    Picture { height, width, rgb }
}
