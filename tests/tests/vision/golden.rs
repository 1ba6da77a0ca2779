//! Rows and values before them beside transformers' and llama.cpp's, in both orders and borders of
//! the table of positions, from a folder and from projector files.

use std::sync::Arc;

use muse_core::Result;
use muse_core::contract::{KvType, Patches, WeightSource};
use muse_core::quant::Format;
use muse_testkit::{Golden, assert_close, golden_dir, max_abs_diff};
use muse_tests::checkpoint::{cpu, fast_cpu};
use muse_tests::vision::{Encoded, Mutation, Pixels, ReferenceTower, encode};
use muse_vision::{
    DecodeOptions, Grid, MAX_IMAGE_TOKENS, Picture, TableBorder, TableOrder, TieRule, TowerOptions,
    picture_to_patches,
};

use super::{WHOLE, nano, picture, projector, tiny, tower};

/// What rows and values before them may differ by: the reference is within 3e-6 of `f64`, and an
/// epsilon of 1e-6 in the layer norms moves them by 9e-5.
const TOLERANCE: f32 = 3e-5;
/// What a wrong reading must move some value by.
const NOTICED: f32 = 2.0 * TOLERANCE;
/// The pictures of the goldens; the first two are square.
const PICTURES: [&str; 6] =
    ["a_56x56", "b_112x112", "c_140x84", "d_84x252", "e_100x75", "f_40x333"];

/// Rows of `[patches, cols]` from window order to raster order, or back.
fn reorder(values: &[f32], height: usize, width: usize, to_raster: bool) -> Vec<f32> {
    // Windows of both models are 8 x 8.
    let mut order: Vec<usize> = (0..height * width).collect();
    order.sort_by_key(|at| (at / width / 8, at % width / 8, *at));
    let cols = values.len() / order.len();
    let mut out = vec![f32::NAN; values.len()];
    for (place, at) in order.into_iter().enumerate() {
        let (from, to) = if to_raster { (place, at) } else { (at, place) };
        out[to * cols..][..cols].copy_from_slice(&values[from * cols..][..cols]);
    }
    out
}

/// Largest differences of what an implementation makes of the pictures in the mode of
/// transformers, from the golden values.
fn differences(
    golden: &Golden,
    pictures: &[&str],
    run: &dyn Fn(&Pixels) -> Result<Encoded>,
) -> Result<Vec<f32>> {
    let mut worst = vec![0.0_f32; 5];
    for name in pictures {
        let pixels = picture(golden, name);
        let got = run(&pixels)?;
        let want = |part: &str| &golden.floats(&format!("{name}.hf.{part}")).1;
        let (height, width) = (pixels.height / 14, pixels.width / 14);
        let in_windows = reorder(want("patch_plus_pos"), height, width, false);
        let shuffled = shuffle(want("ln_post"), height, width);
        let parts = [
            max_abs_diff(&got.values["patches"], &in_windows),
            max_abs_diff(&got.values["layer 0"], want("layer0_windowed_order")),
            max_abs_diff(&got.values["shuffled"], &shuffled),
            max_abs_diff(&got.values["shuffled"], want("pixel_shuffled")),
            max_abs_diff(&got.rows, want("image_embeds")),
        ];
        worst.iter_mut().zip(parts).for_each(|(worst, part)| *worst = worst.max(part));
    }
    Ok(worst)
}

/// Patches in raster order laid side by side, channels outermost.
fn shuffle(values: &[f32], height: usize, width: usize) -> Vec<f32> {
    let cols = values.len() / (height * width);
    let mut out = Vec::with_capacity(values.len());
    for row in 0..height * width / 4 {
        let (top, left) = (row / (width / 2) * 2, row % (width / 2) * 2);
        for i in 0..4 * cols {
            out.push(values[((top + i % 4 / 2) * width + left + i % 2) * cols + i / 4]);
        }
    }
    out
}

fn options(table_order: TableOrder, table_border: TableBorder) -> TowerOptions {
    TowerOptions { table_order, table_border, kv: KvType::F32, ..TowerOptions::default() }
}

fn check_folder(source: &dyn WeightSource, golden: &str) -> Result<()> {
    let (golden, backend) = (Golden::open(golden), Arc::new(cpu()));
    let swapped = tower(&backend, source, options(TableOrder::Swapped, TableBorder::Zero))?;
    let run = |pixels: &Pixels| encode(&*backend, &swapped, &pixels.patches(), WHOLE);
    let worst = differences(&golden, &PICTURES, &run)?;
    assert!(worst.iter().all(|worst| *worst <= TOLERANCE), "differences {worst:?}");
    let straight = tower(&backend, source, options(TableOrder::Straight, TableBorder::Zero))?;
    for name in &PICTURES[2..] {
        let rows = encode(&*backend, &straight, &picture(&golden, name).patches(), WHOLE)?.rows;
        let want = golden.floats(&format!("{name}.straight.image_embeds"));
        assert_close(name, &rows, &want.1, TOLERANCE);
    }
    Ok(())
}

#[test]
fn tiny_rows_and_values_before_them() -> Result<()> {
    check_folder(&tiny()?, "tiny/golden/vision_f32.safetensors")
}

#[test]
fn nano_rows_and_values_before_them() -> Result<()> {
    check_folder(&nano()?, "nano/raw/vision_f32.safetensors")
}

/// Each wrong reading moves some golden value past its tolerance; the right one does not.
#[test]
fn wrong_readings_are_noticed() -> Result<()> {
    let (tiny, golden) = (tiny()?, Golden::open("tiny/golden/vision_f32.safetensors"));
    // A grid of 6 x 18, in three windows, and one of 8 x 6.
    let pictures = ["d_84x252", "e_100x75"];
    let run = |order, mutation| {
        let reference = ReferenceTower::new(&tiny, order, TableBorder::Zero, mutation)?;
        let worst = differences(&golden, &pictures, &|pixels| Ok(reference.encode(pixels)))?;
        Ok::<f32, muse_core::Error>(worst.into_iter().fold(0.0, f32::max))
    };
    let right = run(TableOrder::Swapped, None)?;
    assert!(right <= TOLERANCE, "the right reading differs by {right:e}");
    let straight = run(TableOrder::Straight, None)?;
    assert!(straight > NOTICED, "the straight order differs by {straight:e} only");
    for mutation in Mutation::ALL {
        let worst = run(TableOrder::Swapped, Some(mutation))?;
        assert!(worst > NOTICED, "{mutation:?} differs by {worst:e} only");
    }
    Ok(())
}

/// A grid larger than the table, in four windows of which three are partial, in both borders: no
/// golden has one, the straightforward tower does.
#[test]
fn large_grids_in_both_borders() -> Result<()> {
    let (nano, backend) = (nano()?, Arc::new(cpu()));
    let pixels = Pixels::pattern(14 * 10, 14 * 12);
    let mut rows = Vec::new();
    for border in [TableBorder::Zero, TableBorder::Clamp] {
        let tower = tower(&backend, &nano, options(TableOrder::Straight, border))?;
        let got = encode(&*backend, &tower, &pixels.patches(), WHOLE)?.rows;
        let reference = ReferenceTower::new(&nano, TableOrder::Straight, border, None)?;
        let want = reference.encode(&pixels).rows;
        assert_close(&format!("{border:?}"), &got, &want, TOLERANCE);
        rows.push(got);
    }
    let apart = max_abs_diff(&rows[0], &rows[1]);
    assert!(apart > NOTICED, "the borders differ by {apart:e} only");
    Ok(())
}

/// Rows of projector files against those of the folder that they were made of. In F32 with exact
/// products the arithmetic is the same but for the patch kernel, which is summed in the file. A
/// server's products and K/V cache round activations to BF16, or to eight bits for Q8_0.
#[test]
fn projector_files_give_the_rows_of_the_folder() -> Result<()> {
    let golden = Golden::open("nano/raw/vision_f32.safetensors");
    let (exact, fast) = (Arc::new(cpu()), Arc::new(fast_cpu()));
    let folder = tower(&exact, &nano()?, options(TableOrder::Straight, TableBorder::Zero))?;
    let f32_file = projector("bf16", Some(Format::F32))?;
    let f32_file = tower(&exact, &f32_file, options(TableOrder::Straight, TableBorder::Zero))?;
    let [bf16, q8_0] = ["bf16", "q8_0"].map(|kind| {
        let file = projector(kind, None)?;
        tower(&fast, &file, TowerOptions::default())
    });
    let (bf16, q8_0) = (bf16?, q8_0?);
    for name in PICTURES {
        let patches = picture(&golden, name).patches();
        let want = encode(&*exact, &folder, &patches, WHOLE)?.rows;
        let largest = want.iter().fold(0.0_f32, |a, x| a.max(x.abs()));
        let got = encode(&*exact, &f32_file, &patches, WHOLE)?.rows;
        assert_close(&format!("{name} in F32"), &got, &want, TOLERANCE);
        let got = encode(&*fast, &bf16, &patches, WHOLE)?.rows;
        assert_close(&format!("{name} in BF16"), &got, &want, 0.01 * largest);
        let got = encode(&*fast, &q8_0, &patches, WHOLE)?.rows;
        assert_close(&format!("{name} in Q8_0"), &got, &want, 0.03 * largest);
    }
    Ok(())
}

/// The patches of a picture of any size.
fn resized(picture: Picture) -> Result<Patches> {
    let (height, width) = (picture.height as u32, picture.width as u32);
    let grid = Grid::choose(height, width, MAX_IMAGE_TOKENS, TieRule::Larger)?;
    Ok(picture_to_patches(picture, grid))
}

/// Pictures of the questions that the trained model was asked, from their files.
#[test]
fn nano_rows_of_picture_files() -> Result<()> {
    let (golden, backend) = (Golden::open("nano/images.safetensors"), Arc::new(cpu()));
    let tower = tower(&backend, &nano()?, options(TableOrder::Straight, TableBorder::Zero))?;
    for name in ["colour_left", "count_two", "red_circle", "two_lr", "two_tb"] {
        let file = std::fs::read(golden_dir().join(format!("nano/images/{name}.png")));
        let picture = Picture::decode(&file.expect("part of the tree"), &DecodeOptions::default())?;
        let rows = encode(&*backend, &tower, &resized(picture)?, WHOLE)?.rows;
        assert_close(name, &rows, &golden.floats(name).1, TOLERANCE);
    }
    Ok(())
}

/// llama.cpp's rows before the norm, from the same file in F32.
#[test]
fn rows_of_llama_cpp() -> Result<()> {
    let (golden, backend) = (Golden::open("nano/vision_llamacpp.safetensors"), Arc::new(cpu()));
    let file = projector("bf16", Some(Format::F32))?;
    let tower = tower(&backend, &file, options(TableOrder::Straight, TableBorder::Clamp))?;
    for (width, height) in [(56, 56), (140, 84), (84, 252)] {
        let patches = Pixels::pattern(height, width).patches();
        let got = encode(&*backend, &tower, &patches, WHOLE)?;
        let want = &golden.floats(&format!("{width}x{height}.rows")).1;
        let largest = want.iter().fold(0.0_f32, |a, x| a.max(x.abs()));
        assert_close(
            &format!("{width} x {height}"),
            &got.values["projected"],
            want,
            1e-3 * largest,
        );
    }
    Ok(())
}
