//! Which frames of a video are seen, their times, and their pixels against Pillow's.

use muse_testkit::Golden;
use muse_vision::{
    AnimationInfo, DecodeOptions, Grid, Limits, Picture, TieRule, Video, VideoOptions,
    frames_to_patches, sample_frames, stretch,
};

use super::file;

fn sample(frames: usize, rate: f64) -> Vec<usize> {
    sample_frames(frames, rate, &VideoOptions::default()).expect("a video")
}

#[test]
fn frames_are_sampled_as_documented() {
    assert_eq!(sample(12, 4.0), [0, 2, 4, 6, 8, 11]);
    assert_eq!(sample(1, 24.0), [0]);
    assert_eq!(sample(2, 24.0), [0, 1]);
    // Half a second is a frame, which is made two.
    assert_eq!(sample(12, 24.0), [0, 11]);
    // Of 5 seconds at 1 a second, all frames but for an odd one.
    assert_eq!(sample(5, 1.0), [0, 1, 2, 4]);
    let long = sample(24 * 600, 24.0);
    assert_eq!((long.len(), long[0], long[95]), (96, 0, 14_399));
    for frames in 1..300 {
        for rate in [0.5, 1.0, 2.0, 3.7, 24.0, 60.0] {
            let found = sample(frames, rate);
            let ascending = found.windows(2).all(|pair| pair[0] < pair[1]);
            assert!(ascending && found[0] == 0, "{frames} at {rate}: {found:?}");
            assert!(found.len() == 1 || found.last() == Some(&(frames - 1)));
            assert!(found.len().is_multiple_of(2) || frames == 1, "{frames} at {rate}: {found:?}");
        }
    }
    for (frames, rate) in [(0, 2.0), (5, 0.0), (5, f64::NAN), (5, -1.0)] {
        assert!(sample_frames(frames, rate, &VideoOptions::default()).is_err());
    }
}

#[test]
fn frames_and_durations_are_those_of_pillow() {
    let golden = Golden::open("pictures/pixels.safetensors");
    for name in ["clip.gif", "clip.png", "clip.webp", "moving.gif", "moving.png", "moving.webp"] {
        let bytes = file(name);
        let info = AnimationInfo::read(&bytes, &Limits::default()).expect("an animation");
        let durations: Vec<i32> = info.durations_ms.iter().map(|&ms| ms as i32).collect();
        assert_eq!(durations, golden.ints(&format!("{name}.durations")).1, "{name}");
        let (shape, levels) = golden.bytes(&format!("{name}.frames"));
        let all: Vec<usize> = (0..durations.len()).collect();
        let mut found = Vec::new();
        info.decode(&bytes, &all, &DecodeOptions::default(), &mut |picture| {
            assert_eq!([picture.height, picture.width, 3], shape[1..], "{name}");
            found.extend(picture.rgb);
        })
        .expect("sound frames");
        let frame = shape[1] * shape[2] * 3;
        for (index, (found, levels)) in found.chunks(frame).zip(levels.chunks(frame)).enumerate() {
            let differing = found.iter().zip(levels).filter(|(a, b)| a != b).count();
            println!("{name}: {differing} of {frame} levels differ in frame {index}");
        }
        assert!(&found == levels, "{name}");
    }
}

#[test]
fn a_clip_becomes_groups_with_times() {
    for name in ["clip.gif", "clip.png", "clip.webp"] {
        let decode = DecodeOptions::default();
        let video = Video::decode(&file(name), &decode, &VideoOptions::default()).expect("a clip");
        let grid = Grid::choose(40, 56, 144, TieRule::Larger).expect("a size");
        assert_eq!(video.grid, grid, "{name}");
        assert_eq!(video.group_times_s, [0.0, 1.0, 2.0], "{name}");
        assert_eq!(video.patches.grid_t, 3, "{name}");
        let golden = Golden::open("pictures/pixels.safetensors");
        let frames = &golden.bytes(&format!("{name}.frames")).1;
        let frame = |index: usize| {
            let rgb = frames[index * 40 * 56 * 3..][..40 * 56 * 3].to_vec();
            let picture = Picture { height: 40, width: 56, rgb };
            stretch(picture, grid.pixel_height(), grid.pixel_width())
        };
        let expected = frames_to_patches(&[0, 2, 4, 6, 8, 11].map(frame), grid).expect("frames");
        assert!(video.patches.values == expected.values, "{name}");
        assert_eq!(video.patches.hash, expected.hash, "{name}");
    }
}

#[test]
fn a_still_picture_is_no_video() {
    for name in ["plain.gif", "rgb8.png", "lossless.webp", "444.jpg", "rgb24.bmp"] {
        let error = Video::decode(&file(name), &DecodeOptions::default(), &VideoOptions::default());
        let message = error.expect_err(name).to_string();
        assert!(message.contains("no animation: 1 frames"), "{name}: {message}");
    }
}
