//! Slices, threads and temporal groups change no bit.

use std::sync::Arc;

use muse_core::contract::Patches;
use muse_core::{Error, Result};
use muse_cpu::{Cpu, CpuOptions};
use muse_tests::checkpoint::fast_cpu;
use muse_tests::vision::{Pixels, encode};
use muse_vision::TowerOptions;

use super::{WHOLE, nano, projector, tiny, tower};

#[test]
fn any_slices_on_any_threads_give_the_same_bits() -> Result<()> {
    // 10 x 12 patches in four windows of 8 x 8, three of them partial.
    let patches = Pixels::pattern(140, 168).patches();
    for source in [tiny()?, nano()?, projector("q8_0", None)?] {
        let mut want: Option<Vec<f32>> = None;
        for threads in [1, 2] {
            let backend = Arc::new(Cpu::new(CpuOptions { threads: Some(threads) })?);
            let tower = tower(&backend, &source, TowerOptions::default())?;
            for budget in [WHOLE, 64, 7, 1] {
                let rows = encode(&*backend, &tower, &patches, budget)?.rows;
                let want = want.get_or_insert_with(|| rows.clone());
                assert!(rows == *want, "{threads} threads, budget {budget}");
            }
        }
    }
    Ok(())
}

/// A slice never does more than its budget: the calls are as many as the rows of all stages need.
#[test]
fn a_budget_bounds_a_slice() -> Result<()> {
    let (source, backend) = (nano()?, Arc::new(fast_cpu()));
    let tower = tower(&backend, &source, TowerOptions::default())?;
    let patches = Pixels::pattern(56, 84).patches();
    let count = patches.grid_h * patches.grid_w;
    // Every patch goes through the kernel, two stages of every layer and the projector.
    let rows = count * (2 + 2 * tower.spec().full_layers.len());
    for budget in [4, 8, 24, 1000] {
        let mut encoding = tower.start(patches.clone())?;
        let mut calls = 1;
        while !tower.advance(&mut encoding, budget)? {
            calls += 1;
        }
        assert_eq!(calls, rows.div_ceil(budget), "budget {budget}");
    }
    Ok(())
}

#[test]
fn temporal_groups_are_encoded_one_by_one() -> Result<()> {
    let (source, backend) = (tiny()?, Arc::new(fast_cpu()));
    let tower = tower(&backend, &source, TowerOptions::default())?;
    let pictures = [56, 112].map(|red| {
        let mut pixels = Pixels::pattern(56, 140);
        pixels.values.iter_mut().step_by(3).for_each(|x| *x = x.wrapping_add(red));
        pixels.patches()
    });
    let rows = |patches: &Patches| Ok::<_, Error>(encode(&*backend, &tower, patches, 50)?.rows);
    let values = pictures.each_ref().map(|patches| &patches.values[..]).concat();
    let video = Patches { values: values.into(), grid_t: 2, ..pictures[0] };
    let want = [rows(&pictures[0])?, rows(&pictures[1])?].concat();
    assert!(rows(&video)? == want, "rows of two groups");
    assert_eq!(want.len(), tower.rows(&video) * tower.spec().out);
    Ok(())
}

#[test]
fn patches_that_do_not_fit_are_refused_with_the_numbers() -> Result<()> {
    let backend = Arc::new(fast_cpu());
    let folder = tower(&backend, &tiny()?, TowerOptions::default())?;
    let file = tower(&backend, &projector("bf16", None)?, TowerOptions::default())?;
    let patches = Pixels::pattern(56, 84).patches();
    let refused = |patches: Patches, words: &[&str]| {
        let error = folder.start(patches).err().expect("refused");
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    refused(Patches { grid_h: 0, ..patches.clone() }, &["1 x 0 x 6"]);
    refused(Patches { grid_h: 3, grid_w: 8, ..patches.clone() }, &["3 x 8", "multiples of 2"]);
    refused(Patches { grid_w: 8, ..patches.clone() }, &["28224 values", "4 x 8", "1176"]);
    // Frames that differ need the patch kernel of both; a projector file has the sum.
    let mut values = patches.values.to_vec();
    values[588] += 1.0;
    let video = Patches { values: values.into(), ..patches.clone() };
    assert!(folder.start(video.clone()).is_ok());
    let error = file.start(video).err().expect("refused");
    assert!(matches!(error, Error::Unsupported(_)), "{error:?}");
    assert!(error.to_string().contains("summed over two frames"), "{error}");
    assert!(file.start(patches).is_ok());
    Ok(())
}

#[test]
fn a_checkpoint_without_a_tower_is_refused() -> Result<()> {
    let path = muse_testkit::golden_dir().join("nano/gguf/target.q8_0.gguf");
    let text = muse_weights::Checkpoint::open(&path)?;
    let error = tower(&Arc::new(fast_cpu()), &text, TowerOptions::default()).err();
    let error = error.expect("refused");
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    assert!(error.to_string().contains("mmproj"), "{error}");
    Ok(())
}
