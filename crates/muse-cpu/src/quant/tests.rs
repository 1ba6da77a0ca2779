//! Packed layouts and their kernels against the decoders of their formats, over golden blocks.

use std::fs;

use muse_testkit::golden_dir;

use muse_core::contract::WeightView;

use super::activations::Int8Row;
use super::*;
use crate::aligned::Aligned;
use crate::kernels::Kernels;
use crate::kernels::quantize::Int8Layout;
use crate::pool::Pool;

/// The golden quant blocks of a format whose values are of moderate magnitude.
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

/// A matrix of golden quant blocks, its values, and activations for it.
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

fn repack(packed: &PackedFormat, bytes: Vec<u8>, rows: usize, cols: usize) -> Aligned<u8> {
    let view = WeightView { name: "test", format: packed.format, rows, cols, bytes: bytes.into() };
    packed.repack(&view, &Pool::new(2).unwrap()).unwrap()
}

/// The packed formats that are multiplied with quantized activations, and the layout of these.
fn int8_formats() -> impl Iterator<Item = (&'static PackedFormat, Int8Layout)> {
    PACKED_FORMATS.iter().filter_map(|packed| match packed.activations {
        ActivationFormat::Int8(layout) => Some((packed, layout)),
        ActivationFormat::Bf16 => None,
    })
}

/// A tile of the rows of `x`.
fn quantized(layout: Int8Layout, x: &[f32], k: usize) -> Vec<i32> {
    let format = ActivationFormat::Int8(layout);
    let mut words = vec![0; x.len() / k * format.words(k)];
    format.write(&Kernels::new(Isa::scalar()), x, k, &mut words);
    words
}

/// Packing loses nothing: packed rows decode to the bits of the format's decoder, NaN and infinite
/// scales included.
#[test]
fn packed_rows_decode_as_the_format_does() {
    for (packed, layout) in int8_formats() {
        let block = layout.block;
        let format = packed.format;
        let file = golden_dir().join("quant").join(format.name().to_lowercase());
        let bytes = fs::read(file.with_extension("bin")).expect("golden blocks");
        let rows = bytes.len() / format.block_bytes();
        let mut want = vec![0.0; rows * block];
        format.decode(&bytes, &mut want);
        let panels = repack(packed, bytes, rows, block);
        for (row, want) in want.chunks_exact(block).enumerate() {
            let mut got = vec![0.0; block];
            packed.decode_row(&panels, row, &mut got);
            for (got, want) in got.iter().zip(want) {
                assert!(got == want || got.is_nan() && want.is_nan(), "{format}: {got} {want}");
            }
        }
    }
}

/// Rows of quant blocks with as many bytes of one value as possible without values that are not
/// finite, so that quants and integer scales are as large as they can be, and activations with the
/// largest possible sums.
fn extreme(format: Format, k: usize) -> Vec<(Vec<u8>, Vec<f32>)> {
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
        let bytes = block.repeat(PANEL_ROWS * k / format.block_values());
        for period in [usize::MAX, 16, 1] {
            let sign = |i: usize| if (i / period).is_multiple_of(2) { 1.0 } else { -1.0 };
            cases.push((bytes.clone(), (0..8 * k).map(sign).collect()));
        }
    }
    cases
}

/// The definition is the product of the decoded weights and the dequantized activations.
#[test]
fn the_definition_is_the_product_of_decoded_values() {
    for (packed, layout) in int8_formats() {
        let (rows, k) = (19, 3 * layout.block);
        let (bytes, _, x) = case(packed.format, rows, k, 2);
        check_product(packed, layout, bytes, &x, k);
    }
}

#[test]
fn extreme_blocks_do_not_overflow() {
    for (packed, layout) in int8_formats() {
        let k = 2 * layout.block;
        for (bytes, x) in extreme(packed.format, k) {
            check_product(packed, layout, bytes.clone(), &x[..2 * k], k);
            check_same_bits(packed, layout, bytes, &x, k);
        }
    }
}

fn check_product(packed: &PackedFormat, layout: Int8Layout, bytes: Vec<u8>, x: &[f32], k: usize) {
    let rows = bytes.len() / packed.format.bytes_for(k);
    let mut w = vec![0.0; rows * k];
    packed.format.decode(&bytes, &mut w);
    let panels = repack(packed, bytes, rows, k);
    let words = quantized(layout, x, k);
    let (_, kernels) = packed_format(packed.format, Isa::scalar()).expect("a definition");
    for (p, panel) in panels.chunks_exact(packed.panel_bytes(k)).enumerate() {
        let mut out = [[0.0; PANEL_ROWS]; 2];
        (kernels.packed)(panel, k, &words, &[], &mut out);
        for (r, out) in out.iter().enumerate() {
            let row = Int8Row::new(&words, (r, 2), k, layout, 16);
            let bytes = |quad| row.quants(quad).to_le_bytes().map(|byte| byte as i8);
            let quants: Vec<i8> = (0..k / 4).flat_map(bytes).collect();
            for (lane, got) in out.iter().enumerate() {
                let col = p * PANEL_ROWS + lane;
                if col >= rows {
                    assert_eq!(*got, 0.0, "rows that pad a panel are zero");
                    continue;
                }
                let terms = (0..k).map(|i| {
                    let scale = row.scale(i / layout.block);
                    f64::from(w[col * k + i]) * f64::from(scale) * f64::from(quants[i])
                });
                let (want, size) =
                    terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
                let error = (f64::from(*got) - want).abs();
                // The constant term covers minimums that cancel most of the products.
                assert!(error <= 1e-5 * size + 1e-6, "{}: {got} {want}", packed.format);
            }
        }
    }
}

/// All instruction sets, with packed or unpacked panels, alone or in a batch, have the bits of the
/// definition, and add to what `out` holds.
#[test]
fn all_variants_and_batches_have_the_same_bits() {
    for (packed, layout) in int8_formats() {
        for blocks in [1, 2, 5] {
            let k = blocks * layout.block;
            let (bytes, _, x) = case(packed.format, PANEL_ROWS, k, 16);
            check_same_bits(packed, layout, bytes, &x, k);
        }
    }
}

fn check_same_bits(packed: &PackedFormat, layout: Int8Layout, bytes: Vec<u8>, x: &[f32], k: usize) {
    let panels = repack(packed, bytes, PANEL_ROWS, k);
    let run = |kernel: PanelGemm, panel: &[u8], batch: usize| {
        let mut out = vec![[0.5; PANEL_ROWS]; x.len() / k];
        for (x, out) in x.chunks_exact(batch * k).zip(out.chunks_exact_mut(batch)) {
            kernel(panel, k, &quantized(layout, x, k), &[], out);
        }
        out
    };
    let (_, definition) = packed_format(packed.format, Isa::scalar()).expect("a definition");
    let want = run(definition.packed, &panels, 1);
    for isa in Isa::available() {
        let Some((_, kernels)) = packed_format(packed.format, *isa) else { continue };
        for batch in [1, 2, 4, 8] {
            let what = format!("{} {isa}, {batch} rows, k {k}", packed.format);
            assert!(run(kernels.packed, &panels, batch) == want, "{what}");
            if let Some((unpack, kernel)) = kernels.unpacked {
                let mut panel = vec![0; unpacked_bytes(k)];
                unpack(&panels, &mut panel);
                assert!(run(kernel, &panel, batch) == want, "{what}, unpacked");
            }
        }
    }
}
