//! A row has the same products, bit for bit, alone and in any batch, on any number of threads, for
//! every format and instruction set.

use std::fs;

use muse_core::contract::{Backend, WeightView};
use muse_core::quant::Format;
use muse_cpu::{Cpu, CpuOptions, Isa};
use muse_testkit::golden_dir;

/// A K of whole quant blocks in every format, and one so large that it is split into chunks.
const K: usize = 512;
const LARGE_K: usize = 8448;
/// Weight rows: whole panels and a partial one, enough for several tasks.
const N: usize = 170;
/// Activation rows of the largest batch.
const ROWS: usize = 512;

/// A matrix of golden quant blocks of a format, those with values of moderate magnitude.
fn bytes(format: Format, k: usize) -> Vec<u8> {
    let noise = |i: usize| (i as u32).wrapping_mul(2_654_435_761).wrapping_mul(i as u32 | 1) >> 16;
    let plain = (0..N * k).map(|i| noise(i) as f32 / 32_768.0 - 1.0);
    match format {
        Format::F32 => plain.flat_map(f32::to_le_bytes).collect(),
        Format::Bf16 => plain.flat_map(|x| [x.to_le_bytes()[2], x.to_le_bytes()[3]]).collect(),
        // The exponent of 1: values from 1 to 2 of either sign.
        Format::F16 => {
            (0..N * k).flat_map(|i| (0x3c00 | noise(i) as u16 & 0x83ff).to_le_bytes()).collect()
        }
        _ => {
            let file = golden_dir().join("quant").join(format.name().to_lowercase());
            let blocks = fs::read(file.with_extension("bin")).expect("golden blocks");
            let mut values = vec![0.0; format.block_values()];
            let moderate = |block: &&[u8]| {
                format.decode(block, &mut values);
                values.iter().all(|x| x.abs() < 1e4)
            };
            let blocks: Vec<_> =
                blocks.chunks_exact(format.block_bytes()).filter(moderate).collect();
            let count = N * k / format.block_values();
            (0..count).flat_map(|i| blocks[noise(i) as usize % blocks.len()].to_vec()).collect()
        }
    }
}

/// The bits of the products of rows `first .. first + rows` with a weight.
fn products(cpu: &Cpu, weight: &muse_cpu::Weight, first: usize, rows: usize) -> Vec<u32> {
    let (_, k) = weight.shape();
    let x: Vec<f32> = (first * k..(first + rows) * k)
        .map(|i| (i * 7919 % 10_007) as f32 / 5003.0 - 1.0)
        .collect();
    let (mut input, mut out) = (cpu.alloc(rows, k).unwrap(), cpu.alloc(rows, N).unwrap());
    cpu.write(&mut input, 0, &x).unwrap();
    cpu.linear(&input, rows, &mut [(weight, &mut out)]).unwrap();
    let mut read = vec![0.0; rows * N];
    cpu.read(&out, 0, &mut read).unwrap();
    read.into_iter().map(f32::to_bits).collect()
}

/// A weight of these bytes.
fn load(cpu: &Cpu, format: Format, bytes: &[u8], cols: usize) -> muse_cpu::Weight {
    cpu.load(WeightView { name: "test", format, rows: N, cols, bytes: bytes.into() }).unwrap()
}

#[test]
fn batch_composition_and_threads_change_no_bit() {
    for &format in Format::ALL {
        let bytes = bytes(format, K);
        for &isa in Isa::available() {
            let load = |threads| {
                let cpu = Cpu::with_isa(CpuOptions { threads: Some(threads) }, isa).unwrap();
                let weight = load(&cpu, format, &bytes, K);
                (cpu, weight)
            };
            // The scalar kernels are slow.
            let (batches, rows): (&[_], _) = if isa == Isa::scalar() {
                (&[2, 3, 7], 8)
            } else {
                (&[2, 3, 7, 16, 33, 512], ROWS)
            };
            let (cpu, weight) = load(1);
            let firsts = [0, 1, 2, 5, 6, 7, 14, 15, 31, 32, 33, 255, rows - 1];
            for &batch in batches {
                let together = products(&cpu, &weight, 0, batch);
                for first in firsts.into_iter().filter(|&first| first < batch) {
                    let alone = products(&cpu, &weight, first, 1);
                    let in_batch = &together[first * N..(first + 1) * N];
                    assert!(alone == in_batch, "{format} {isa}: row {first} of {batch}");
                }
                for threads in [2, 3] {
                    let (cpu, weight) = load(threads);
                    let shared = products(&cpu, &weight, 0, batch);
                    assert!(shared == together, "{format} {isa}: {batch} rows, {threads} threads");
                }
            }
        }
    }
}

/// Products over several chunks of K are complete, and the same alone and in any batch.
#[test]
fn products_over_several_k_chunks_are_complete_and_batch_invariant() {
    for format in [Format::Bf16, Format::Q8_0, Format::Q4K] {
        let bytes = bytes(format, LARGE_K);
        let cpu = Cpu::new(CpuOptions { threads: Some(2) }).unwrap();
        let weight = load(&cpu, format, &bytes, LARGE_K);
        let exact_cpu = Cpu::new(CpuOptions { threads: Some(2) }).unwrap().exact();
        let exact_weight = load(&exact_cpu, format, &bytes, LARGE_K);
        let exact = products(&exact_cpu, &exact_weight, 0, 97);
        let mut values = vec![0.0; N * LARGE_K];
        format.decode(&bytes, &mut values);
        // Activations are below one, and rounding moves them by less than 1/250.
        let tolerance = |w: &[f32]| w.iter().map(|w| w.abs()).sum::<f32>() / 250.0;
        let tolerances: Vec<f32> = values.chunks_exact(LARGE_K).map(tolerance).collect();
        for batch in [3, 16, 97] {
            let together = products(&cpu, &weight, 0, batch);
            for (i, (got, want)) in together.iter().zip(&exact).enumerate() {
                let (got, want) = (f32::from_bits(*got), f32::from_bits(*want));
                assert!((got - want).abs() <= tolerances[i % N], "{format}, {batch}: {got} {want}");
            }
            for first in [0, 2, batch - 1] {
                let alone = products(&cpu, &weight, first, 1);
                assert!(
                    alone == together[first * N..(first + 1) * N],
                    "{format}: {first} of {batch}"
                );
            }
        }
    }
}
