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

/// Rows of a picture file, from the embedded model, beside the reference's.
#[test]
fn encode_writes_the_rows_of_a_picture() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("rows.safetensors");
    let image = golden_dir().join("nano/images/two_lr.png");
    let (image, out) = (image.to_str().expect("UTF-8"), out.to_str().expect("UTF-8"));
    let args = ["vision", "encode", "--image", image, "--out", out];
    let said = muse(&[&args[..], &["--exact", "--threads", "1"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains("18 rows of 256 values"), "{}", said.out);
    let (written, golden) =
        (Golden::open_path(Path::new(out)), Golden::open("nano/images.safetensors"));
    let (shape, rows) = written.floats("rows");
    let want = golden.floats("two_lr");
    assert_eq!(*shape, want.0);
    assert_close("rows", rows, &want.1, 1e-4);
}

#[test]
fn encode_refuses_what_is_no_picture_or_has_no_tower() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("rows.safetensors");
    let out_text = out.to_str().expect("UTF-8");
    let refused = |image: &Path, more: &[&str], words: &[&str]| {
        let image = image.to_str().expect("UTF-8");
        let args = ["vision", "encode", "--out", out_text, "--image", image];
        let Said { code, err, .. } = muse(&[&args[..], more].concat());
        assert_eq!(code, Some(1), "{err}");
        assert!(words.iter().all(|word| err.contains(word)), "{err}");
        assert!(!out.exists(), "nothing is written");
    };
    let picture = golden_dir().join("nano/images/two_lr.png");
    refused(&nano_dir().join("target/config.json"), &[], &["--image", "config.json"]);
    refused(Path::new("/absent.png"), &[], &["--image /absent.png"]);
    let text = golden_dir().join("nano/gguf/target.q8_0.gguf");
    refused(&picture, &["--model", text.to_str().expect("UTF-8")], &["no vision tower", "mmproj"]);
}
