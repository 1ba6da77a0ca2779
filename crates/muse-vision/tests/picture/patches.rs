//! The stretch and the patches, against the reference processor and a plain second implementation.

use std::fs;

use muse_testkit::{Golden, golden_dir};
use muse_vision::{
    DecodeOptions, Grid, MAX_IMAGE_TOKENS, PATCH_LEN, Patches, Picture, TieRule, frames_to_patches,
    picture_to_patches, stretch,
};

const PICTURES: [&str; 6] =
    ["a_56x56", "b_112x112", "c_140x84", "d_84x252", "e_100x75", "f_40x333"];

fn picture(name: &str) -> Picture {
    let path = golden_dir().join(format!("tiny/golden/img_{name}.png"));
    let bytes = fs::read(path).expect("the golden");
    Picture::decode(&bytes, &DecodeOptions::default()).expect("a sound file")
}

fn grid(picture: &Picture) -> Grid {
    let (height, width) = (picture.height as u32, picture.width as u32);
    Grid::choose(height, width, MAX_IMAGE_TOKENS, TieRule::Larger).expect("a size")
}

#[test]
fn stretched_pixels_are_those_of_the_reference_processor() {
    let golden = Golden::open("tiny/golden/vision_f32.safetensors");
    for name in PICTURES {
        let picture = picture(name);
        let grid = grid(&picture);
        let stretched = stretch(picture, grid.pixel_height(), grid.pixel_width());
        let (shape, levels) = golden.bytes(&format!("{name}.resized_hf"));
        assert_eq!(shape, &[stretched.height, stretched.width, 3], "{name}");
        assert!(&stretched.rgb == levels, "{name}");
    }
}

#[test]
fn patches_are_those_of_the_reference_processor() {
    let golden = Golden::open("tiny/golden/vision_f32.safetensors");
    for name in PICTURES {
        let picture = picture(name);
        let grid = grid(&picture);
        let patches = picture_to_patches(picture, grid);
        let (shape, head) = golden.floats(&format!("{name}.pixel_values_head"));
        assert_eq!(shape, &[2, PATCH_LEN], "{name}");
        assert!(&patches.values[..head.len()] == head.as_slice(), "{name}");
        // A mistaken order of the axes would not pass: no other order gives these values.
        for order in [[1, 0, 2, 3], [0, 2, 3, 1], [0, 1, 3, 2]] {
            let patch = &patches.values[..PATCH_LEN];
            assert!(permuted(patch, order) != head[..PATCH_LEN], "{name}: {order:?}");
        }
    }
}

/// A patch with its axes (t 2, c 3, y 14, x 14) in another order.
fn permuted(patch: &[f32], order: [usize; 4]) -> Vec<f32> {
    const SIZES: [usize; 4] = [2, 3, 14, 14];
    let strides = [588, 196, 14, 1];
    let mut out = Vec::with_capacity(patch.len());
    let sizes = order.map(|axis| SIZES[axis]);
    for index in 0..patch.len() {
        let mut rest = index;
        let mut at = 0;
        for axis in (0..4).rev() {
            at += rest % sizes[axis] * strides[order[axis]];
            rest /= sizes[axis];
        }
        out.push(patch[at]);
    }
    out
}

/// A picture of hashed levels: noise, the hardest for clipping between the passes.
fn noise(height: usize, width: usize, seed: usize) -> Picture {
    let level = |n: usize| ((n + seed * 7919).wrapping_mul(2_654_435_761) >> 13) as u8;
    Picture { height, width, rgb: (0..height * width * 3).map(level).collect() }
}

#[test]
fn every_value_is_where_the_layout_says() {
    let grid = Grid { height: 2, width: 3 };
    let frames: Vec<Picture> = (0..3).map(|seed| noise(56, 84, seed)).collect();
    let video = frames_to_patches(&frames, grid).expect("frames of the size of the grid");
    assert_eq!((video.grid_t, video.grid_h, video.grid_w), (2, 4, 6));
    let check = |patches: &Patches, frame: &dyn Fn(usize) -> usize| {
        for (index, value) in patches.values.iter().enumerate() {
            let (patch, inside) = (index / PATCH_LEN, index % PATCH_LEN);
            let (t, c, y, x) = (inside / 588, inside / 196 % 3, inside / 14 % 14, inside % 14);
            let (group, row, column) = (patch / 24, patch % 24 / 6, patch % 6);
            let picture = &frames[frame(group * 2 + t)];
            let level = picture.rgb[((row * 14 + y) * 84 + column * 14 + x) * 3 + c];
            let expected = (f64::from(level) / 255.0 - 0.5) / 0.5;
            assert!((f64::from(*value) - expected).abs() < 1e-7, "value {index}");
        }
    };
    // The last frame of an odd number is repeated, the one frame of a picture as well.
    check(&video, &|frame| frame.min(2));
    check(&picture_to_patches(frames[1].clone(), grid), &|_| 1);
}

#[test]
fn frames_must_have_the_size_of_the_grid() {
    let grid = Grid { height: 1, width: 1 };
    let error = frames_to_patches(&[noise(28, 28, 0), noise(28, 56, 0)], grid).expect_err("a size");
    assert!(error.to_string().contains("56 x 28"), "{error}");
    assert!(frames_to_patches(&[], grid).is_err());
}

#[test]
fn the_hash_follows_pixels_and_grid() {
    let hash =
        |picture: Picture, height, width| picture_to_patches(picture, Grid { height, width }).hash;
    let first = hash(noise(28, 56, 1), 1, 2);
    assert_eq!(first, hash(noise(28, 56, 1), 1, 2));
    assert_ne!(first, hash(noise(28, 56, 2), 1, 2));
    // The same levels in another shape.
    let turned = Picture { height: 56, width: 28, ..noise(28, 56, 1) };
    assert_ne!(first, hash(turned, 2, 1));
    let mut altered = noise(28, 56, 1);
    altered.rgb[4000] ^= 1;
    assert_ne!(first, hash(altered, 1, 2));
}

/// Lanczos with antialias, straight from its definition: weights in 16-bit fixed point with as much
/// precision as the largest allows, 8-bit levels after the horizontal pass.
fn plain_stretch(picture: &Picture, height: usize, width: usize) -> Vec<u8> {
    let across = plain_pass(&picture.rgb, [picture.height, picture.width], width, 3, 1);
    plain_pass(&across, [picture.height, width], height, width * 3, 0)
}

/// Filters `levels`, `[rows, columns, 3]`, along one axis to `size` elements, which lie `stride`
/// levels apart.
fn plain_pass(
    levels: &[u8],
    sides: [usize; 2],
    size: usize,
    stride: usize,
    axis: usize,
) -> Vec<u8> {
    let old = sides[axis];
    if old == size {
        return levels.to_vec();
    }
    let scale = old as f64 / size as f64;
    let widen = scale.max(1.0);
    let sinc = |x: f64| {
        if x == 0.0 { 1.0 } else { (x * std::f64::consts::PI).sin() / (x * std::f64::consts::PI) }
    };
    let lanczos = |x: f64| if (-3.0..3.0).contains(&x) { sinc(x) * sinc(x / 3.0) } else { 0.0 };
    let mut windows = Vec::new();
    for index in 0..size {
        let centre = (index as f64 + 0.5) * scale;
        let first = (centre - 3.0 * widen + 0.5).max(0.0) as usize;
        let last = ((centre + 3.0 * widen + 0.5) as usize).min(old);
        let weights: Vec<f64> =
            (first..last).map(|at| lanczos((at as f64 - centre + 0.5) * (1.0 / widen))).collect();
        let sum: f64 = weights.iter().sum();
        windows.push((first, weights.iter().map(|weight| weight / sum).collect::<Vec<f64>>()));
    }
    let max = windows.iter().flat_map(|(_, weights)| weights).fold(0.0f64, |a, &b| a.max(b));
    let mut precision = 0;
    while precision < 22 && (max * f64::from(1 << (precision + 1)) + 0.5) < 32768.0 {
        precision += 1;
    }
    let other = levels.len() / old / 3;
    let mut out = vec![0; size * other * 3];
    for (index, (first, weights)) in windows.iter().enumerate() {
        let fixed: Vec<i32> = weights
            .iter()
            .map(|weight| (weight * f64::from(1 << precision)).round() as i32)
            .collect();
        for line in 0..other {
            for channel in 0..3 {
                // Elements of a row are 3 levels apart, elements of a column a row.
                let start = |length: usize| match axis {
                    1 => line * length * 3 + channel,
                    _ => line * 3 + channel,
                };
                let mut sum = 1 << (precision - 1);
                for (at, weight) in fixed.iter().enumerate() {
                    sum += i32::from(levels[start(old) + (first + at) * stride]) * weight;
                }
                out[start(size) + index * stride] = (sum >> precision).clamp(0, 255) as u8;
            }
        }
    }
    out
}

#[test]
fn stretching_noise_equals_the_definition() {
    for (seed, (from, to)) in [
        ((1, 1), (28, 28)),
        ((2, 3), (28, 56)),
        ((29, 27), (28, 28)),
        ((100, 75), (112, 84)),
        ((97, 203), (56, 140)),
        ((300, 40), (28, 308)),
        ((333, 17), (56, 28)),
        ((64, 64), (64, 28)),
    ]
    .into_iter()
    .enumerate()
    {
        let picture = noise(from.0, from.1, seed);
        let expected = plain_stretch(&picture, to.0, to.1);
        let found = stretch(picture, to.0, to.1).rgb;
        let differing = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
        assert_eq!(differing, 0, "{from:?} to {to:?}: of {} levels", expected.len());
    }
}
