//! Products of a row have the same bits alone, in any batch, on any number of threads, for every
//! format and instruction set.

use std::fs;

use muse_core::contract::{Backend, WeightView};
use muse_core::quant::Format;
use muse_cpu::{Cpu, CpuOptions, Isa};
use muse_testkit::golden_dir;

/// Values of K that every format has whole blocks of.
const K: usize = 512;
/// Weight rows: whole panels, a part of one, enough for several tasks.
const N: usize = 170;
const ROWS: usize = 512;

/// Golden blocks of a format with values of moderate size, in some order.
fn bytes(format: Format) -> Vec<u8> {
    let noise = |i: usize| (i as u32).wrapping_mul(2_654_435_761).wrapping_mul(i as u32 | 1) >> 16;
    let plain = (0..N * K).map(|i| noise(i) as f32 / 32_768.0 - 1.0);
    match format {
        Format::F32 => plain.flat_map(f32::to_le_bytes).collect(),
        Format::Bf16 => plain.flat_map(|x| [x.to_le_bytes()[2], x.to_le_bytes()[3]]).collect(),
        // Exponents of ones: 1 to 2 of either sign.
        Format::F16 => {
            (0..N * K).flat_map(|i| (0x3c00 | noise(i) as u16 & 0x83ff).to_le_bytes()).collect()
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
            let count = N * K / format.block_values();
            (0..count).flat_map(|i| blocks[noise(i) as usize % blocks.len()].to_vec()).collect()
        }
    }
}

/// Bits of the products of rows `first .. first + rows` with a weight.
fn products(cpu: &Cpu, weight: &muse_cpu::Weight, first: usize, rows: usize) -> Vec<u32> {
    let x: Vec<f32> = (first * K..(first + rows) * K)
        .map(|i| (i * 7919 % 10_007) as f32 / 5003.0 - 1.0)
        .collect();
    let (mut input, mut out) = (cpu.alloc(rows, K).unwrap(), cpu.alloc(rows, N).unwrap());
    cpu.write(&mut input, 0, &x).unwrap();
    cpu.linear(&input, rows, &mut [(weight, &mut out)]).unwrap();
    let mut read = vec![0.0; rows * N];
    cpu.read(&out, 0, &mut read).unwrap();
    read.into_iter().map(f32::to_bits).collect()
}

#[test]
fn company_and_threads_change_no_bit() {
    for &format in Format::ALL {
        let bytes = bytes(format);
        for &isa in Isa::available() {
            let load = |threads| {
                let cpu = Cpu::with_isa(CpuOptions { threads: Some(threads) }, isa).unwrap();
                let bytes = bytes.as_slice().into();
                let view = WeightView { name: "test", format, rows: N, cols: K, bytes };
                let weight = cpu.load(view).unwrap();
                (cpu, weight)
            };
            // The scalar definitions take their time.
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
                    let among = &together[first * N..(first + 1) * N];
                    assert!(alone == among, "{format} {isa}: row {first} of {batch}");
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
