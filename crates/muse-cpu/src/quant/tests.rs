//! Holds every packed layout to its format's decoder, over golden blocks.

use std::fs;

use muse_testkit::golden_dir;

use super::activations::Row;
use super::*;
use crate::kernels::Kernels;

/// Blocks of a format whose values are numbers of a moderate size, from the golden files.
fn blocks(format: Format) -> Vec<Vec<u8>> {
    let file = golden_dir().join("quant").join(format.name().to_lowercase());
    let bytes = fs::read(file.with_extension("bin")).expect("golden blocks");
    let mut values = vec![0.0; format.block_values()];
    let moderate = |block: &&[u8]| {
        format.decode(block, &mut values);
        values.iter().all(|x| x.abs() < 1e4)
    };
    bytes.chunks_exact(format.block_bytes()).filter(moderate).map(<[u8]>::to_vec).collect()
}

/// A matrix of golden blocks in some order, its values, and activations for it.
fn case(format: Format, rows: usize, k: usize, batch: usize) -> (Vec<u8>, Vec<f32>, Vec<f32>) {
    let blocks = blocks(format);
    let per_row = k / format.block_values();
    let bytes: Vec<u8> =
        (0..rows * per_row).flat_map(|i| blocks[i * 31 % blocks.len()].clone()).collect();
    let mut values = vec![0.0; rows * k];
    format.decode(&bytes, &mut values);
    let x = (0..batch * k).map(|i| (i * 7919 % 2003) as f32 / 1001.0 - 1.0).collect();
    (bytes, values, x)
}

fn packed(kind: &Kind, bytes: Vec<u8>, rows: usize, cols: usize) -> Aligned<u8> {
    let view = WeightView { name: "test", format: kind.format, rows, cols, bytes: bytes.into() };
    kind.repack(&view, &Pool::new(2).unwrap()).unwrap()
}

/// Packings that meet bytes, with the form of these.
fn int8_kinds() -> impl Iterator<Item = (&'static Kind, Form)> {
    KINDS.iter().filter_map(|kind| match kind.activations {
        Activations::Int8(form) => Some((kind, form)),
        Activations::Bf16 => None,
    })
}

/// A tile of the rows of `x`.
fn quantized(form: Form, x: &[f32], k: usize) -> Vec<i32> {
    let form = Activations::Int8(form);
    let mut words = vec![0; x.len() / k * form.words(k)];
    form.write(&Kernels::new(Isa::scalar()), x, k, &mut words);
    words
}

/// Packing loses nothing: rows come back in the bits of the file's decoder, NaN and infinite
/// scales included.
#[test]
fn packed_rows_decode_as_the_file_does() {
    for (kind, form) in int8_kinds() {
        let block = form.block;
        let format = kind.format;
        let file = golden_dir().join("quant").join(format.name().to_lowercase());
        let bytes = fs::read(file.with_extension("bin")).expect("golden blocks");
        let rows = bytes.len() / format.block_bytes();
        let mut want = vec![0.0; rows * block];
        format.decode(&bytes, &mut want);
        let packed = packed(kind, bytes, rows, block);
        for (row, want) in want.chunks_exact(block).enumerate() {
            let mut got = vec![0.0; block];
            kind.decode_row(&packed, row, &mut got);
            for (got, want) in got.iter().zip(want) {
                assert!(got == want || got.is_nan() && want.is_nan(), "{format}: {got} {want}");
            }
        }
    }
}

/// Blocks of a format with as many bytes of one value as leave its values finite, which makes numbers
/// and multiples as large as they get, and activations that are as heavy.
fn extreme(kind: &Kind, k: usize) -> Vec<(Vec<u8>, Vec<f32>)> {
    let format = kind.format;
    let mut values = vec![0.0; format.block_values()];
    let blocks = blocks(format);
    let mut cases = Vec::new();
    for fill in [0, 0xff, 0x7f, 0x80, 0xf0, 0x0f] {
        let mut block = blocks[usize::from(fill) % blocks.len()].clone();
        for i in 0..block.len() {
            let before = std::mem::replace(&mut block[i], fill);
            format.decode(&block, &mut values);
            if values.iter().any(|x| x.abs() >= 1e6 || x.is_nan()) {
                block[i] = before;
            }
        }
        let bytes = block.repeat(PANEL * k / format.block_values());
        for period in [usize::MAX, 16, 1] {
            let sign = |i: usize| if (i / period).is_multiple_of(2) { 1.0 } else { -1.0 };
            cases.push((bytes.clone(), (0..8 * k).map(sign).collect()));
        }
    }
    cases
}

/// The definition is the product of what the weights and the quantized activations stand for.
#[test]
fn the_definition_is_the_product() {
    for (kind, form) in int8_kinds() {
        let (rows, k) = (19, 3 * form.block);
        let (bytes, _, x) = case(kind.format, rows, k, 2);
        is_the_product(kind, form, bytes, &x, k);
    }
}

#[test]
fn extreme_blocks_are_multiplied_too() {
    for (kind, form) in int8_kinds() {
        let k = 2 * form.block;
        for (bytes, x) in extreme(kind, k) {
            is_the_product(kind, form, bytes.clone(), &x[..2 * k], k);
            have_the_same_bits(kind, form, bytes, &x, k);
        }
    }
}

fn is_the_product(kind: &Kind, form: Form, bytes: Vec<u8>, x: &[f32], k: usize) {
    let rows = bytes.len() / kind.format.bytes_for(k);
    let mut w = vec![0.0; rows * k];
    kind.format.decode(&bytes, &mut w);
    let packed = packed(kind, bytes, rows, k);
    let words = quantized(form, x, k);
    let (_, kernels) = Kind::of(kind.format, Isa::scalar()).expect("a definition");
    for (p, panel) in packed.chunks_exact(kind.panel_bytes(k)).enumerate() {
        let mut out = [[0.0; PANEL]; 2];
        (kernels.packed)(panel, k, &words, &[], &mut out);
        for (r, out) in out.iter().enumerate() {
            let row = Row::of(&words, (r, 2), k, form, 16);
            let bytes = |quad| row.numbers(quad).to_le_bytes().map(|byte| byte as i8);
            let numbers: Vec<i8> = (0..k / 4).flat_map(bytes).collect();
            for (lane, got) in out.iter().enumerate() {
                let col = p * PANEL + lane;
                if col >= rows {
                    assert_eq!(*got, 0.0, "rows that fill a panel up are zero");
                    continue;
                }
                let terms = (0..k).map(|i| {
                    let scale = row.scale(i / form.block);
                    f64::from(w[col * k + i]) * f64::from(scale) * f64::from(numbers[i])
                });
                let (want, size) =
                    terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
                let error = (f64::from(*got) - want).abs();
                // A minimum takes away most of what the numbers add.
                assert!(error <= 1e-5 * size + 1e-6, "{}: {got} {want}", kind.format);
            }
        }
    }
}

/// Every instruction set, unpacked or not, alone or among others: the bits of the definition, added
/// to what was there.
#[test]
fn all_variants_and_batches_have_the_same_bits() {
    for (kind, form) in int8_kinds() {
        for blocks in [1, 2, 5] {
            let k = blocks * form.block;
            let (bytes, _, x) = case(kind.format, PANEL, k, 16);
            have_the_same_bits(kind, form, bytes, &x, k);
        }
    }
}

fn have_the_same_bits(kind: &Kind, form: Form, bytes: Vec<u8>, x: &[f32], k: usize) {
    let packed = packed(kind, bytes, PANEL, k);
    let run = |rows: Rows, panel: &[u8], together: usize| {
        let mut out = vec![[0.5; PANEL]; x.len() / k];
        for (x, out) in x.chunks_exact(together * k).zip(out.chunks_exact_mut(together)) {
            rows(panel, k, &quantized(form, x, k), &[], out);
        }
        out
    };
    let (_, definition) = Kind::of(kind.format, Isa::scalar()).expect("a definition");
    let want = run(definition.packed, &packed, 1);
    for isa in Isa::available() {
        let Some((_, kernels)) = Kind::of(kind.format, *isa) else { continue };
        for together in [1, 2, 4, 8] {
            let what = format!("{} {isa}, {together} rows, k {k}", kind.format);
            assert!(run(kernels.packed, &packed, together) == want, "{what}");
            if let Some((expand, rows)) = kernels.expand {
                let mut panel = vec![0; expanded::bytes(k)];
                expand(&packed, &mut panel);
                assert!(run(rows, &panel, together) == want, "{what}, unpacked");
            }
        }
    }
}
