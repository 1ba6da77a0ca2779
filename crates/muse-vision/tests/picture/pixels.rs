//! Decoded pixels against Pillow's: equal where the format is lossless, close where it is not.

use muse_testkit::{Golden, golden_dir};
use muse_vision::{Alpha, DecodeOptions, Format, Grey16, Limits, Picture, PictureInfo};

use super::file;

fn golden() -> Golden {
    Golden::open("pictures/pixels.safetensors")
}

fn names(endings: &[&str]) -> Vec<String> {
    let folder = golden_dir().join("pictures/files");
    let entries = std::fs::read_dir(folder).expect("the folder of pictures");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> =
        names.map(|name| name.into_string().expect("a plain name")).collect();
    names.retain(|name| endings.iter().any(|ending| name.ends_with(ending)));
    names.sort();
    assert!(!names.is_empty(), "no files for {endings:?}");
    names
}

/// Mean and maximum of the differences between a picture and `[height, width, 3]` levels.
fn difference(name: &str, picture: &Picture, (shape, levels): &(Vec<usize>, Vec<u8>)) -> (f64, u8) {
    assert_eq!(shape, &[picture.height, picture.width, 3], "{name}");
    let differences = picture.rgb.iter().zip(levels).map(|(a, b)| a.abs_diff(*b));
    let max = differences.clone().max().expect("pixels");
    let sum: f64 = differences.map(f64::from).sum();
    (sum / levels.len() as f64, max)
}

fn decode(name: &str, options: &DecodeOptions) -> Picture {
    Picture::decode(&file(name), options).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Sound files whose pixels cannot or need not be Pillow's.
fn is_lossy(name: &str) -> bool {
    name.starts_with("lossy")
}

#[test]
fn lossless_formats_give_the_pixels_of_pillow() {
    let golden = golden();
    let options = DecodeOptions { grey16: Grey16::Clip, ..DecodeOptions::default() };
    for name in names(&[".png", ".bmp", ".gif", ".webp"]) {
        if is_lossy(&name) {
            continue;
        }
        let picture = decode(&name, &options);
        let (mean, max) = difference(&name, &picture, golden.bytes(&format!("{name}.rgb")));
        assert_eq!((mean, max), (0.0, 0), "{name}: mean and maximum difference");
    }
}

#[test]
fn transparency_over_white_is_rounded_as_pillow_does() {
    let golden = golden();
    let options = DecodeOptions { alpha: Alpha::OverWhite, ..DecodeOptions::default() };
    let mut seen = 0;
    for name in names(&[".png", ".gif", ".webp"]) {
        let key = format!("{name}.white");
        if is_lossy(&name) || !golden.names().contains(&key.as_str()) {
            continue;
        }
        let (mean, max) = difference(&name, &decode(&name, &options), golden.bytes(&key));
        assert_eq!((mean, max), (0.0, 0), "{name}: mean and maximum difference");
        seen += 1;
    }
    assert!(seen >= 8, "{seen} files with transparency");
}

#[test]
fn grey_of_16_bits_keeps_its_high_byte_by_default() {
    let file = file("grey16.png");
    let picture = Picture::decode(&file, &DecodeOptions::default()).expect("a sound file");
    let clipped =
        decode("grey16.png", &DecodeOptions { grey16: Grey16::Clip, ..Default::default() });
    assert!(clipped.rgb.iter().filter(|&&level| level == 255).count() * 10 > clipped.rgb.len() * 9);
    // The samples are the green channel of the scene of 8 bits, with random low bytes.
    let scene = decode("rgb8.png", &DecodeOptions::default());
    let greens = scene.rgb.as_chunks::<3>().0.iter().map(|pixel| pixel[1]);
    let greys = picture.rgb.as_chunks::<3>().0.iter().map(|pixel| pixel[0]);
    assert!(greens.eq(greys), "the high bytes");
}

#[test]
fn jpeg_is_close_to_pillow() {
    let golden = golden();
    let mut worst = (0.0f64, 0);
    for name in names(&[".jpg"]) {
        let picture = decode(&name, &DecodeOptions::default());
        let (mean, max) = difference(&name, &picture, golden.bytes(&format!("{name}.rgb")));
        println!("{name}: mean {mean:.3}, maximum {max}");
        // 3 x 5 pixels: most of them are at an edge of the chroma, where decoders differ.
        let scale = if name == "tiny.jpg" { 0.8 } else { 1.0 };
        worst = (worst.0.max(mean * scale), worst.1.max(max));
    }
    assert!(worst.0 <= 0.5, "mean difference {worst:?}");
    assert!(worst.1 <= 4, "maximum difference {worst:?}");
}

#[test]
fn lossy_webp_is_close_to_pillow() {
    let golden = golden();
    for name in names(&["lossy.webp", "lossy_alpha.webp"]) {
        let picture = decode(&name, &DecodeOptions::default());
        let (mean, max) = difference(&name, &picture, golden.bytes(&format!("{name}.rgb")));
        println!("{name}: mean {mean:.3}, maximum {max}");
        assert!(mean <= 0.5 && max <= 4, "{name}: mean {mean}, maximum {max}");
    }
}

#[test]
fn the_header_alone_gives_the_upright_size() {
    let limits = Limits::default();
    for name in names(&[""]) {
        let info = PictureInfo::read(&file(&name), &limits).expect("a sound file");
        let picture = decode(&name, &DecodeOptions::default());
        let size = (info.height as usize, info.width as usize);
        assert_eq!(size, (picture.height, picture.width), "{name}");
        let ending = match info.format {
            Format::Png => "png",
            Format::Jpeg => "jpg",
            Format::WebP => "webp",
            Format::Gif => "gif",
            Format::Bmp => "bmp",
        };
        assert!(name.ends_with(ending), "{name} is {ending}");
    }
}
