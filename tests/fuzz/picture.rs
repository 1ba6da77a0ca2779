//! Shared by the targets over pictures: sound files to grow from, and all that is done with one.

use muse_vision::{
    DecodeOptions, Grid, Limits, MAX_IMAGE_TOKENS, Picture, PictureInfo, TieRule, Video,
    VideoOptions, picture_to_patches,
};

/// Starts from a sound file instead of an empty one, when there is room for it.
pub fn plant(data: &mut [u8], size: usize, sound: &[u8]) -> usize {
    if size > 1 || sound.len() > data.len() {
        return size;
    }
    data[..sound.len()].copy_from_slice(sound);
    sound.len()
}

/// Reads header, picture and animation of a file, within limits that keep each run short.
pub fn read(file: &[u8]) {
    let limits = Limits {
        max_pixels: 1 << 16,
        max_decoded_bytes: 1 << 20,
        max_frames: 16,
        max_animation_pixels: 1 << 17,
        ..Limits::default()
    };
    let options = DecodeOptions { limits, ..DecodeOptions::default() };
    let info = PictureInfo::read(file, &limits);
    match Picture::decode(file, &options) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(picture) => {
            let info = info.expect("what decodes has a header");
            let size = (info.height as usize, info.width as usize);
            assert_eq!(size, (picture.height, picture.width));
            assert_eq!(picture.rgb.len(), picture.height * picture.width * 3);
            let grid = Grid::choose(info.height, info.width, 9, TieRule::Larger).expect("a size");
            assert!(grid.tokens() <= 9.min(MAX_IMAGE_TOKENS));
            let patches = picture_to_patches(picture, grid);
            assert!(patches.values.iter().all(|value| (-1.0..=1.0).contains(value)));
        }
    }
    if let Ok(video) = Video::decode(file, &options, &VideoOptions::default()) {
        assert_eq!(video.group_times_s.len(), video.patches.grid_t);
    }
}
