//! `muse vision`: grids of pictures.

use super::*;

#[test]
fn grid_tells_what_a_picture_costs() {
    let out = muse(&["vision", "grid", "900x600"]).out;
    for part in ["33 x 22 cells", "924 x 616 pixels", "2904 patches", "726 tokens", "728 in"] {
        assert!(out.contains(part), "no {part:?} in {out}");
    }
    let grid = |args: &[&str]| {
        let found = muse(&[&["vision", "grid", "--json"], args].concat()).json();
        [&found["grid_width"], &found["grid_height"], &found["tokens"], &found["prompt_tokens"]]
            .map(|number| number.as_u64().expect("a number"))
    };
    assert_eq!(grid(&["400x400"]), [15, 15, 225, 227]);
    assert_eq!(grid(&["400x400", "--ties", "reference"]), [14, 14, 196, 198]);
    assert_eq!(grid(&["1920x1080", "--image-max-tokens", "144"]), [16, 9, 144, 146]);
}

#[test]
fn a_size_that_is_none_is_refused() {
    for size in ["900", "900x", "0x5", "x", "9x5x3", "-1x4"] {
        let Said { code, err, .. } = muse(&["vision", "grid", "--", size]);
        assert_eq!(code, Some(2), "{size}: {err}");
        assert!(err.contains("900x600"), "{size}: {err}");
    }
}
