//! The number of threads never changes a bit.

mod layer;

use std::collections::HashSet;

use layer::{Layer, ROWS, tokens};
use muse_core::contract::{
    Attention, Backend, BlockTable, KV_BLOCK_SIZE, KvGroup, KvShape, KvType, Mask, SeqSlice,
};
use muse_core::quant::Format;
use muse_cpu::{Cpu, CpuOptions};

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for format in [Format::Bf16, Format::F32] {
        let run = |threads| {
            let cpu = Cpu::new(CpuOptions { threads: Some(threads) }).unwrap();
            let mut layer = Layer::new(cpu, format).unwrap();
            // A prefill chunk, a draft block, a decoded token.
            [(0, ROWS), (ROWS, 16), (ROWS + 16, 1)].map(|(start, rows)| {
                layer.run(&tokens(rows), start as u32).unwrap();
                let (logits, sampled) = layer.results(rows);
                let bits: Vec<_> = logits.iter().map(|x| x.to_bits()).collect();
                let distinct = bits.iter().collect::<HashSet<_>>().len();
                assert!(distinct > bits.len() / 2, "{distinct} of {} logits differ", bits.len());
                (bits, sampled)
            })
        };
        let alone = run(1);
        for threads in [2, 3] {
            assert!(run(threads) == alone, "{format} on {threads} threads");
        }
    }
}

#[test]
fn tokens_run_in_one_batch_or_one_by_one() {
    let layer = || {
        let cpu = Cpu::new(CpuOptions { threads: Some(2) }).unwrap();
        Layer::new(cpu, Format::Bf16).unwrap()
    };
    let (mut batched, mut single) = (layer(), layer());
    batched.run(&tokens(ROWS), 0).unwrap();
    let (want, _) = batched.results(ROWS);
    let width = want.len() / ROWS;
    for (start, token) in tokens(ROWS).into_iter().enumerate() {
        single.run(&[token], start as u32).unwrap();
        assert!(
            single.results(1).0 == want[start * width..(start + 1) * width],
            "position {start}"
        );
    }
}

#[test]
fn impossible_numbers_of_threads_are_refused() {
    for threads in [0, 1_000_000] {
        let error = Cpu::new(CpuOptions { threads: Some(threads) }).unwrap_err();
        assert!(error.to_string().contains(&threads.to_string()), "{error}");
    }
}

/// The system cannot start threads whose stacks are larger than its address space. A child process
/// with such a default therefore gets the errors of a machine that is at its limit of threads.
#[cfg(target_os = "linux")]
#[test]
fn threads_that_the_system_refuses_are_a_clear_error() {
    use std::process::Command;
    use std::time::Duration;

    use muse_core::Error;
    use muse_cpu::Peaks;

    const IN_CHILD: &str = "MUSE_CPU_TEST_WITHOUT_THREADS";
    if std::env::var_os(IN_CHILD).is_none() {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "threads_that_the_system_refuses_are_a_clear_error"])
            .args(["--test-threads", "1", "--nocapture"])
            .envs([(IN_CHILD, "1"), ("RUST_MIN_STACK", "1152921504606846976")])
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&child.stdout);
        let errors = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{printed}{errors}");
        assert!(printed.contains("1 passed"), "{printed}");
        return;
    }
    let cpu = Cpu::new(CpuOptions { threads: Some(3) }).unwrap_err();
    let peaks = Peaks::measure(1, Duration::ZERO).unwrap_err();
    for (error, thread) in [(cpu, "thread 2 of 3"), (peaks, "thread 1 of 1")] {
        assert!(matches!(error, Error::Exhausted(_)), "{error:?}");
        let text = error.to_string();
        for part in [thread, "use fewer threads", "ulimit -u"] {
            assert!(text.contains(part), "{text:?} lacks {part:?}");
        }
    }
    // One thread is the calling one, so it needs no other.
    Cpu::new(CpuOptions { threads: Some(1) }).unwrap();
}

/// With more threads than K/V heads, the query heads of a K/V head are split among threads.
#[test]
fn attention_has_the_same_bits_on_any_number_of_threads() {
    const DEPTH: usize = 2048;
    let (heads, head_dim, blocks) =
        (16, 64, (0..(DEPTH / KV_BLOCK_SIZE) as u32).collect::<Vec<_>>());
    let value = |i: usize| (i * 7919 % 1009) as f32 / 504.5 - 1.0;
    let table = BlockTable { full: &blocks, window: &[], window_base: 0 };
    for kind in [KvType::Bf16, KvType::F32] {
        let run = |threads| {
            let cpu = Cpu::new(CpuOptions { threads: Some(threads) }).unwrap();
            let (group, blocks) = (KvGroup::Full, blocks.len());
            let shape = KvShape { group, blocks, kv_heads: 1, head_dim, kind };
            let mut kv = cpu.alloc_kv(shape).unwrap();
            let mut rows = cpu.alloc(DEPTH, head_dim).unwrap();
            cpu.write(&mut rows, 0, &(0..DEPTH * head_dim).map(value).collect::<Vec<_>>()).unwrap();
            let all = SeqSlice { start: 0, len: DEPTH, blocks: table };
            cpu.write_kv(&mut kv, &[all], &rows, &rows).unwrap();
            let width = heads * head_dim;
            let (mut q, mut out) = (cpu.alloc(1, width).unwrap(), cpu.alloc(1, width).unwrap());
            cpu.write(&mut q, 0, &(0..width).map(|i| value(i + 5)).collect::<Vec<_>>()).unwrap();
            let last = SeqSlice { start: DEPTH as u32 - 1, len: 1, blocks: table };
            let mask = Mask::Causal { window: None };
            let attention = Attention { heads, head_dim, scale: 0.1, mask };
            cpu.attend(&q, &kv, &[last], &attention, &mut out).unwrap();
            let mut read = vec![0.0; width];
            cpu.read(&out, 0, &mut read).unwrap();
            read.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        };
        let alone = run(1);
        let heads = alone.chunks_exact(head_dim).collect::<HashSet<_>>().len();
        assert_eq!(heads, 16, "heads differ");
        for threads in [2, 3, 8] {
            assert!(run(threads) == alone, "{kind:?} on {threads} threads");
        }
    }
}
