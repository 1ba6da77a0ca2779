//! Files that are damaged, lie about their size, or are bombs: an error each, in little memory.

use allocation_counter::measure;
use muse_core::Error;
use muse_vision::{DecodeOptions, Limits, Picture, PictureInfo, Video, VideoOptions};

use super::file;

/// What a refusal may hold at once.
const MAX_BYTES: u64 = 64 << 20;

/// A sound file with bytes replaced.
fn patched(name: &str, changes: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = file(name);
    for (at, new) in changes {
        bytes[*at..at + new.len()].copy_from_slice(new);
    }
    bytes
}

/// A sound file, up to `numerator` / 8 of its length.
fn cut(name: &str, numerator: usize) -> Vec<u8> {
    let bytes = file(name);
    bytes[..bytes.len() * numerator / 8].to_vec()
}

/// A PNG with only its header, of RGB.
fn png(width: u32, height: u32) -> Vec<u8> {
    let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
    let mut bytes = patched("rgb8.png", &[(16, &size)]);
    bytes.truncate(41);
    bytes
}

/// A JPEG with the frame header changed: bytes from its precision on.
fn jpeg(frame: &[u8], marker: u8) -> Vec<u8> {
    let mut bytes = file("444.jpg");
    let at = bytes.windows(2).position(|pair| pair == [0xff, 0xc0]).expect("a frame header");
    bytes[at + 1] = marker;
    bytes[at + 4..][..frame.len()].copy_from_slice(frame);
    bytes
}

fn webp(chunks: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
    let mut content = b"WEBP".to_vec();
    for (name, data) in chunks {
        content.extend_from_slice(*name);
        content.extend_from_slice(&(data.len() as u32).to_le_bytes());
        content.extend_from_slice(data);
        content.resize(content.len().next_multiple_of(2), 0);
    }
    [b"RIFF", &(content.len() as u32).to_le_bytes()[..], &content].concat()
}

/// The header of an extended WebP: flags, width and height less one in three bytes each.
fn extended(flags: u8, width: u32, height: u32) -> (&'static [u8; 4], Vec<u8>) {
    let side = |side: u32| (side - 1).to_le_bytes()[..3].to_vec();
    (b"VP8X", [vec![flags, 0, 0, 0], side(width), side(height)].concat())
}

/// The header of a lossy frame.
fn vp8(width: u16, height: u16) -> Vec<u8> {
    let size = [width.to_le_bytes(), height.to_le_bytes()].concat();
    [vec![0x10, 0, 0, 0x9d, 1, 0x2a], size, vec![0; 40]].concat()
}

/// The header of a lossless frame.
fn vp8l(width: u32, height: u32) -> Vec<u8> {
    let bits = (width - 1) | (height - 1) << 14;
    [vec![0x2f], bits.to_le_bytes().to_vec(), vec![0; 40]].concat()
}

/// A frame of an animation: place, size, duration, and its picture.
fn anmf(x: u8, y: u8, width: u8, height: u8, picture: Vec<u8>) -> Vec<u8> {
    let place = vec![x / 2, 0, 0, y / 2, 0, 0, width - 1, 0, 0, height - 1, 0, 0, 100, 0, 0, 0];
    let len = (picture.len() as u32).to_le_bytes();
    [place, b"VP8L".to_vec(), len.to_vec(), picture].concat()
}

/// A GIF of this screen, with a frame of this size and four bytes of data.
fn gif(screen: [u16; 2], frame: Option<[u16; 2]>) -> Vec<u8> {
    let pair = |sides: [u16; 2]| sides.map(u16::to_le_bytes).concat();
    let mut bytes = [b"GIF89a".to_vec(), pair(screen), vec![0x80, 0, 0], vec![0; 6]].concat();
    if let Some(frame) = frame {
        bytes.extend([vec![0x2c, 0, 0, 0, 0], pair(frame), vec![0, 2, 2, 0x44, 1, 0]].concat());
    }
    bytes.push(0x3b);
    bytes
}

/// A bitmap with only its header.
fn bmp(width: i32, height: i32, bits: u16, compression: u32) -> Vec<u8> {
    let size = [width.to_le_bytes(), height.to_le_bytes()].concat();
    let kind = [bits.to_le_bytes().to_vec(), compression.to_le_bytes().to_vec()].concat();
    let mut bytes = patched("rgb24.bmp", &[(18, &size), (28, &kind)]);
    bytes.truncate(100);
    bytes
}

/// Name, bytes, and a part of the message.
type Case = (&'static str, Vec<u8>, &'static str);

fn of_no_format() -> Vec<Case> {
    vec![
        ("nothing", vec![], "0 bytes"),
        ("one byte", vec![0x89], "PNG, JPEG, WebP, GIF and BMP"),
        ("text", b"hello, world".to_vec(), "hello, world"),
        ("PDF", b"%PDF-1.7 ...".to_vec(), "%PDF"),
        ("TIFF", b"II*\0\x08\0\0\0".to_vec(), "accepted"),
        ("SVG", b"<svg xmlns='http://www.w3.org/2000/svg'/>".to_vec(), "<svg"),
        ("other RIFF", b"RIFF\x10\0\0\0WAVEfmt ".to_vec(), "RIFF"),
    ]
}

fn of_png() -> Vec<Case> {
    vec![
        ("PNG signature", file("rgb8.png")[..8].to_vec(), "truncated"),
        ("PNG half a header", file("rgb8.png")[..20].to_vec(), "truncated"),
        ("PNG without IHDR", patched("rgb8.png", &[(12, b"IDAT")]), "IHDR"),
        ("PNG of no width", png(0, 43), "0 x 43"),
        ("PNG of no height", png(61, 0), "61 x 0"),
        ("PNG bomb", png(30_000, 30_000), "30000 x 30000 = 900000000"),
        ("PNG of 2^32 a side", png(u32::MAX, u32::MAX), "at most 67108864"),
        ("PNG without its pixels", png(8000, 8000), "truncated"),
        ("PNG cut in its pixels", cut("rgb8.png", 4), "PNG"),
        ("PNG cut at its end", cut("rgb16.png", 7), "PNG"),
        ("PNG of colour type 5", patched("rgb8.png", &[(25, &[5])]), "PNG"),
        ("PNG of 3 bits", patched("rgb8.png", &[(24, &[3])]), "PNG"),
        ("PNG with damaged pixels", patched("rgb8.png", &[(200, &[0; 9])]), "PNG"),
        ("PNG larger than its data", patched("rgb8.png", &[(16, &[0, 0, 1, 0])]), "PNG"),
    ]
}

fn of_jpeg() -> Vec<Case> {
    vec![
        ("JPEG of three bytes", vec![0xff, 0xd8, 0xff], "truncated"),
        (
            "JPEG without a frame",
            vec![0xff, 0xd8, 0xff, 0xda, 0, 2, 0xff, 0xd9],
            "before its frame",
        ),
        ("JPEG of only ends", vec![0xff, 0xd8, 0xff, 0xd9], "no frame header"),
        (
            "JPEG of two frames",
            {
                let bytes = file("444.jpg");
                let at = bytes.windows(2).position(|pair| pair == [0xff, 0xc0]).expect("a frame");
                [&bytes[..at + 19], &bytes[at..]].concat()
            },
            "more than one frame",
        ),
        ("JPEG bomb", jpeg(&[8, 0xff, 0xdc, 0xff, 0xdc], 0xc0), "65500 x 65500"),
        ("JPEG without its pixels", jpeg(&[8, 0x1f, 0x40, 0x1f, 0x40], 0xc2), "truncated"),
        ("JPEG of no height", jpeg(&[8, 0, 0, 0, 9], 0xc0), "9 x 0"),
        ("JPEG of no width", jpeg(&[8, 0, 9, 0, 0], 0xc0), "0 x 9"),
        ("JPEG cut in its pixels", cut("444.jpg", 4), "truncated"),
        ("arithmetic JPEG", jpeg(&[8], 0xc9), "0xc9"),
        ("lossless JPEG", jpeg(&[8], 0xc3), "0xc3"),
        ("JPEG of 12 bits", jpeg(&[12], 0xc1), "12 bits"),
        ("JPEG of two components", jpeg(&[8, 0, 9, 0, 9, 2], 0xc0), "2 components"),
        ("JPEG with a long segment", patched("444.jpg", &[(4, &[0xff, 0xff])]), "truncated"),
    ]
}

fn of_webp() -> Vec<Case> {
    let still = |canvas, frame| webp(&[canvas, (b"VP8 ", frame)]);
    vec![
        ("WebP without chunks", webp(&[]), "truncated"),
        ("WebP of an unknown chunk", webp(&[(b"ABCD", vec![0; 9])]), "ABCD"),
        ("WebP cut", cut("lossless.webp", 5), "truncated"),
        ("WebP with a long chunk", patched("lossless.webp", &[(16, &[0xff; 4])]), "truncated"),
        ("WebP bomb", webp(&[(b"VP8L", vp8l(16_384, 16_384))]), "16384 x 16384"),
        ("WebP canvas bomb", webp(&[extended(0, 1 << 24, 256)]), "16777216 x 256"),
        ("WebP of no size", webp(&[(b"VP8 ", vp8(0, 0))]), "0 x 0"),
        ("WebP frame bomb", still(extended(0, 16, 16), vp8(16_383, 16_383)), "contradicts"),
        (
            "WebP frame beyond",
            webp(&[
                extended(2, 16, 16),
                (b"ANIM", vec![0; 6]),
                (b"ANMF", anmf(8, 8, 16, 16, vp8l(16, 16))),
            ]),
            "contradicts",
        ),
        (
            "WebP animation bomb",
            webp(&[
                extended(2, 16, 16),
                (b"ANIM", vec![0; 6]),
                (b"ANMF", anmf(0, 0, 16, 16, vp8l(16_384, 16_384))),
            ]),
            "contradicts",
        ),
        ("WebP without a picture", webp(&[extended(0, 16, 16)]), "WebP"),
        ("WebP with half a header", webp(&[(b"VP8X", vec![0; 5])]), "at least 10"),
        ("WebP with damaged pixels", webp(&[(b"VP8L", vp8l(500, 500))]), "WebP"),
    ]
}

fn of_gif_and_bmp() -> Vec<Case> {
    vec![
        ("GIF header", b"GIF89a\x10".to_vec(), "truncated"),
        ("GIF of no size", gif([0, 0], None), "0 x 0"),
        ("GIF bomb", gif([65_535, 65_535], None), "65535 x 65535"),
        ("GIF without a frame", gif([10, 10], None), "GIF"),
        ("GIF frame bomb", gif([10, 10], Some([65_535, 65_535])), "GIF"),
        ("GIF without its pixels", gif([900, 900], Some([900, 900])), "GIF"),
        ("GIF cut", cut("plain.gif", 6), "GIF"),
        ("BMP of two bytes", b"BM".to_vec(), "truncated"),
        ("BMP bomb", bmp(65_535, 32_767, 24, 0), "65535 x 32767"),
        ("BMP without its pixels", bmp(8000, 8000, 24, 0), "truncated"),
        ("BMP of no width", bmp(0, 5, 24, 0), "0 x 5"),
        ("BMP of the lowest height", bmp(5, i32::MIN, 24, 0), "at most"),
        ("BMP of negative width", bmp(-5, 5, 24, 0), "BMP"),
        ("BMP of runs without runs", bmp(8000, 8000, 8, 1), "truncated"),
        ("BMP of 7 bits", bmp(5, 5, 7, 0), "BMP"),
        ("BMP of compression 99", bmp(5, 5, 24, 99), "BMP"),
        ("BMP of a short header", patched("rgb24.bmp", &[(14, &[3, 0, 0, 0])]), "BMP"),
        ("BMP cut", cut("rgb24.bmp", 7), "truncated"),
    ]
}

#[test]
fn hostile_files_are_errors_in_little_memory() {
    let cases = [of_no_format(), of_png(), of_jpeg(), of_webp(), of_gif_and_bmp()].concat();
    assert!(cases.len() >= 40, "{} cases", cases.len());
    for (name, bytes, part) in cases {
        let mut result = None;
        let used = measure(|| result = Some(Picture::decode(&bytes, &DecodeOptions::default())));
        let error = result.expect("it ran").expect_err(name);
        assert!(matches!(error, Error::Invalid(_)), "{name}: {error:?}");
        let message = error.to_string();
        assert!(message.contains(part), "{name}: no {part:?} in {message:?}");
        assert!(used.bytes_max <= MAX_BYTES, "{name}: {} bytes", used.bytes_max);
    }
}

#[test]
fn headers_are_refused_before_anything_is_allocated() {
    for (name, bytes) in [
        ("PNG", png(30_000, 30_000)),
        ("JPEG", jpeg(&[8, 0xff, 0xdc, 0xff, 0xdc], 0xc0)),
        ("WebP", webp(&[(b"VP8L", vp8l(16_384, 16_384))])),
        ("GIF", gif([65_535, 65_535], None)),
        ("BMP", bmp(65_535, 32_767, 24, 0)),
    ] {
        let used = measure(|| {
            Picture::decode(&bytes, &DecodeOptions::default()).expect_err("a bomb");
        });
        assert!(used.bytes_max <= 64 << 10, "{name}: {} bytes", used.bytes_max);
    }
}

#[test]
fn limits_are_the_callers() {
    let bytes = file("rgba16.png");
    let refuse = |limits: Limits, part: &str| {
        let options = DecodeOptions { limits, ..DecodeOptions::default() };
        let error = Picture::decode(&bytes, &options).expect_err(part);
        assert!(error.to_string().contains(part), "{error}");
    };
    let limits = Limits::default();
    refuse(Limits { max_bytes: bytes.len() - 1, ..limits }, "bytes, at most");
    refuse(Limits { max_pixels: 43 * 61 - 1, ..limits }, "pixels, at most");
    refuse(Limits { max_decoded_bytes: 43 * 61 * 8 - 1, ..limits }, "of memory");
    let exact = Limits { max_bytes: bytes.len(), max_pixels: 43 * 61, ..limits };
    let exact = Limits { max_decoded_bytes: 43 * 61 * 8, ..exact };
    let options = DecodeOptions { limits: exact, ..DecodeOptions::default() };
    assert!(Picture::decode(&bytes, &options).is_ok());
    let clip = file("clip.gif");
    for limits in [
        Limits { max_frames: 11, ..limits },
        Limits { max_animation_pixels: 40 * 56 * 12 - 1, ..limits },
    ] {
        let decode = DecodeOptions { limits, ..DecodeOptions::default() };
        let error = Video::decode(&clip, &decode, &VideoOptions::default()).expect_err("too many");
        assert!(error.to_string().contains("frames"), "{error}");
    }
}

#[test]
fn damaged_files_never_panic() {
    let options = DecodeOptions::default();
    let names = ["palette4.png", "exif3.jpg", "ycck.jpg", "lossy_alpha.webp", "moving.webp"];
    for name in names.into_iter().chain(["moving.gif", "moving.png", "rle8.bmp", "bilevel.bmp"]) {
        let sound = file(name);
        let mut state = 1u64;
        for _ in 0..150 {
            let mut bytes = sound.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] = (state >> 20) as u8;
            }
            let _ = PictureInfo::read(&bytes, &options.limits);
            let _ = Picture::decode(&bytes, &options);
            let _ = Video::decode(&bytes, &options, &VideoOptions::default());
        }
    }
}
