//! The number of threads never changes a bit.

mod layer;

use std::collections::HashSet;

use layer::{Layer, ROWS, tokens};
use muse_core::quant::Format;
use muse_cpu::{Cpu, CpuOptions};

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for format in [Format::Bf16, Format::F32] {
        let run = |threads| {
            let cpu = Cpu::new(CpuOptions { threads: Some(threads) }).unwrap();
            let mut layer = Layer::new(cpu, format).unwrap();
            // A long chunk, a block behind it, a decoded row.
            [(0, ROWS), (ROWS, 16), (ROWS + 16, 1)].map(|(start, rows)| {
                layer.run(&tokens(rows), start as u32).unwrap();
                let (scores, picked) = layer.results(rows);
                let bits: Vec<_> = scores.iter().map(|x| x.to_bits()).collect();
                let distinct = bits.iter().collect::<HashSet<_>>().len();
                assert!(distinct > bits.len() / 2, "{distinct} of {} scores differ", bits.len());
                (bits, picked)
            })
        };
        let alone = run(1);
        for threads in [2, 3] {
            assert!(run(threads) == alone, "{format} on {threads} threads");
        }
    }
}

#[test]
fn rows_run_together_or_one_by_one() {
    let layer = || {
        let cpu = Cpu::new(CpuOptions { threads: Some(2) }).unwrap();
        Layer::new(cpu, Format::Bf16).unwrap()
    };
    let (mut whole, mut single) = (layer(), layer());
    whole.run(&tokens(ROWS), 0).unwrap();
    let (want, _) = whole.results(ROWS);
    let width = want.len() / ROWS;
    for (start, token) in tokens(ROWS).into_iter().enumerate() {
        single.run(&[token], start as u32).unwrap();
        assert!(single.results(1).0 == want[start * width..(start + 1) * width], "row {start}");
    }
}

#[test]
fn impossible_numbers_of_threads_are_refused() {
    for threads in [0, 1_000_000] {
        let error = Cpu::new(CpuOptions { threads: Some(threads) }).unwrap_err();
        assert!(error.to_string().contains(&threads.to_string()), "{error}");
    }
}
