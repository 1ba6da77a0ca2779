//! The peak rates of the machine, measured: the upper bounds that kernels are compared with.

mod round;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::hint::black_box;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use muse_core::Result;

use crate::aligned::Aligned;
#[cfg(target_arch = "x86_64")]
use crate::kernels::Level;
use crate::kernels::{Isa, read_memory};
use crate::pool::{cannot_start, check_threads};
use round::f32_plain;

/// Words per thread, several times the size of caches, and words of a round, so few that some
/// rounds are not interrupted.
const WORDS: usize = 24 << 20;
const ROUND_WORDS: usize = 1 << 20;

/// Peak rates of all threads together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Bytes read from memory per second.
    pub read: f64,
    /// Operations per second of dot products of bytes, two per product; `None` if the CPU has no
    /// instructions for them.
    pub int8: Option<f64>,
    /// The same of dot products of BF16.
    pub bf16: Option<f64>,
    /// Operations per second of fused multiply-adds in single precision, two per product.
    pub f32: f64,
}

impl Peaks {
    /// Measures `threads` threads that run at the same time. A rate is that of the best round of
    /// those that fit into `time`, since other work on the machine can only lower it.
    ///
    /// # Errors
    /// [`muse_core::Error::Invalid`] for threads that [`crate::Cpu`] refuses too,
    /// [`muse_core::Error::Exhausted`] when memory to read cannot be allocated or threads cannot be
    /// started.
    pub fn measure(threads: usize, time: Duration) -> Result<Self> {
        check_threads(threads)?;
        let isa = Isa::best();
        let mut memory = Aligned::<i32>::zeroed(WORDS * threads)?;
        // Memory pages that were never written share one physical page.
        memory.fill(1);
        let read_memory = read_memory::select(isa);
        let read = best_rate(threads, time, |thread, round| {
            let start = thread * WORDS + round * ROUND_WORDS % WORDS;
            black_box(read_memory(&memory[start..start + ROUND_WORDS]));
            size_of::<i32>() * ROUND_WORDS
        })?;
        let rate = |work: fn() -> usize| best_rate(threads, time, |_, _| work());
        let rounds = rounds(isa);
        Ok(Self {
            read,
            int8: rounds.int8.map(rate).transpose()?,
            bf16: rounds.bf16.map(rate).transpose()?,
            f32: rate(rounds.f32)?,
        })
    }
}

/// Functions that run a round of work and return its number of operations.
struct Rounds {
    int8: Option<fn() -> usize>,
    bf16: Option<fn() -> usize>,
    f32: fn() -> usize,
}

fn rounds(isa: Isa) -> Rounds {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Bf16 => {
            Rounds { int8: Some(x86::int8), bf16: Some(x86::bf16), f32: x86::f32_avx512 }
        }
        #[cfg(target_arch = "x86_64")]
        Level::Vnni => Rounds { int8: Some(x86::int8), bf16: None, f32: x86::f32_avx512 },
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => Rounds { int8: None, bf16: None, f32: x86::f32_avx512 },
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => Rounds { int8: None, bf16: None, f32: x86::f32_avx2 },
        _ => Rounds { int8: None, bf16: None, f32: f32_plain },
    }
}

/// The best rate of rounds that all threads run at the same time, the same number of rounds for
/// each measurement.
fn best_rate(
    threads: usize,
    time: Duration,
    round: impl Fn(usize, usize) -> usize + Sync,
) -> Result<f64> {
    let begin = Instant::now();
    round(0, 0);
    let rounds = (time.as_secs_f64() / begin.elapsed().as_secs_f64()) as usize + 1;
    let barrier = Barrier::new(threads);
    let run = |thread: usize| -> Vec<(f64, usize)> {
        let timed = |index| {
            barrier.wait();
            let begin = Instant::now();
            let work = round(thread, index);
            (begin.elapsed().as_secs_f64(), work)
        };
        (0..rounds).map(timed).collect()
    };
    let times: Vec<Vec<(f64, usize)>> = thread::scope(|scope| {
        let run = &run;
        // Threads begin when all have started: with one missing they would wait at the barrier for
        // ever. Without a signal they end.
        let mut started = Vec::with_capacity(threads);
        for thread in 0..threads {
            let (begin, signal) = mpsc::channel();
            let body = move || signal.recv().map_or_else(|_| Vec::new(), |()| run(thread));
            let handle = thread::Builder::new()
                .spawn_scoped(scope, body)
                .map_err(|error| cannot_start(thread + 1, threads, &error))?;
            started.push((begin, handle));
        }
        started.iter().for_each(|(begin, _)| begin.send(()).expect("the thread waits"));
        let handles = started.into_iter().map(|(_, handle)| handle);
        Ok(handles.map(|handle| handle.join().expect("a round does not panic")).collect())
    })?;
    let rate = |round: usize| {
        let slowest = times.iter().map(|times| times[round].0).fold(0.0, f64::max);
        times.iter().map(|times| times[round].1).sum::<usize>() as f64 / slowest
    };
    Ok((0..rounds).map(rate).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_numbers_of_threads_are_refused() {
        for threads in [0, 100_000] {
            let refused = Peaks::measure(threads, Duration::ZERO).unwrap_err().to_string();
            assert!(refused.contains("ask for 1 to 4096"), "{refused}");
        }
    }

    #[test]
    fn every_instruction_set_of_the_cpu_has_a_rate() {
        let peaks = Peaks::measure(1, Duration::from_millis(20)).unwrap();
        let has = |names: &[&str]| names.contains(&Isa::best().name());
        assert_eq!(peaks.int8.is_some(), has(&["avx512vnni", "avx512bf16"]), "{peaks:?}");
        assert_eq!(peaks.bf16.is_some(), has(&["avx512bf16"]), "{peaks:?}");
        for rate in
            [Some(peaks.read), Some(peaks.f32), peaks.int8, peaks.bf16].into_iter().flatten()
        {
            assert!(rate > 1e6 && rate.is_finite(), "{peaks:?}");
        }
    }
}
