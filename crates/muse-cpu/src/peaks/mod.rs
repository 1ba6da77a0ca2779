//! What the machine can do at most, measured: the ceilings that kernels are judged by.

#[cfg(target_arch = "x86_64")]
mod x86;

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use muse_core::Result;

use crate::aligned::Aligned;
use crate::backend::check_threads;
#[cfg(target_arch = "x86_64")]
use crate::kernels::Level;
use crate::kernels::{Isa, read};

/// Steps of a round of arithmetic.
const STEPS: usize = 20_000;
/// Accumulators, so that no step waits for the one before.
const CHAINS: usize = 12;
/// Words of each thread, several times what caches hold, and those that it reads in a round: few,
/// so that some rounds are not interrupted.
const WORDS: usize = 24 << 20;
const ROUND_WORDS: usize = 1 << 20;

/// Ceilings of all threads together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Bytes read from memory in a second.
    pub read: f64,
    /// Operations in a second of products of bytes, two a product; none without instructions.
    pub int8: Option<f64>,
    /// The same of products of upper halves of floats.
    pub bf16: Option<f64>,
    /// The same of products in single precision.
    pub f32: f64,
}

impl Peaks {
    /// Measures `threads` threads at once: the best of the rounds that fit into `time` for each
    /// ceiling, since other work on the machine only ever takes away.
    ///
    /// # Errors
    /// [`muse_core::Error::Invalid`] for threads that [`crate::Cpu`] refuses too,
    /// [`muse_core::Error::Exhausted`] when there is no memory to read.
    pub fn measure(threads: usize, time: Duration) -> Result<Self> {
        check_threads(threads)?;
        let isa = Isa::best();
        let mut memory = Aligned::<i32>::zeroed(WORDS * threads)?;
        // Pages that nothing was written to are all the same one.
        memory.fill(1);
        let read = read::select(isa);
        let read = best(threads, time, |thread, round| {
            let start = thread * WORDS + round * ROUND_WORDS % WORDS;
            black_box(read(&memory[start..start + ROUND_WORDS]));
            size_of::<i32>() * ROUND_WORDS
        });
        let rate = |work: fn() -> usize| best(threads, time, |_, _| work());
        let rounds = rounds(isa);
        Ok(Self {
            read,
            int8: rounds.int8.map(rate),
            bf16: rounds.bf16.map(rate),
            f32: rate(rounds.f32),
        })
    }
}

/// Rounds of work that say how many operations they did.
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
        _ => Rounds { int8: None, bf16: None, f32: plain },
    }
}

/// Products in single precision, in whatever vectors the target has.
fn plain() -> usize {
    let (factor, mut sums) = (black_box(0.5_f32), [0.0_f32; 4 * CHAINS]);
    for _ in 0..STEPS {
        for sum in &mut sums {
            *sum = *sum * factor + factor;
        }
    }
    black_box(sums);
    2 * STEPS * sums.len()
}

/// The best rate of rounds that all threads run together, a fixed number of them for all.
fn best(threads: usize, time: Duration, round: impl Fn(usize, usize) -> usize + Sync) -> f64 {
    let begin = Instant::now();
    round(0, 0);
    let rounds = (time.as_secs_f64() / begin.elapsed().as_secs_f64()) as usize + 1;
    let barrier = Barrier::new(threads);
    let work = |thread: usize| {
        let one = |index| {
            barrier.wait();
            let begin = Instant::now();
            let work = round(thread, index);
            (begin.elapsed().as_secs_f64(), work)
        };
        (0..rounds).map(one).collect()
    };
    let times: Vec<Vec<(f64, usize)>> = thread::scope(|scope| {
        let work = &work;
        let handles: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        handles.into_iter().map(|handle| handle.join().expect("a round does not panic")).collect()
    });
    let rate = |round: usize| {
        let slowest = times.iter().map(|times| times[round].0).fold(0.0, f64::max);
        times.iter().map(|times| times[round].1).sum::<usize>() as f64 / slowest
    };
    (0..rounds).map(rate).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_cannot_work_are_refused() {
        for threads in [0, 100_000] {
            let refused = Peaks::measure(threads, Duration::ZERO).unwrap_err().to_string();
            assert!(refused.contains("ask for 1 to 4096"), "{refused}");
        }
    }

    #[test]
    fn ceilings_are_in_order() {
        let peaks = Peaks::measure(1, Duration::from_millis(20)).unwrap();
        assert!(peaks.read > 1e7 && peaks.f32 > 1e7, "{peaks:?}");
        for wider in [peaks.int8, peaks.bf16].into_iter().flatten() {
            assert!(wider > peaks.f32, "{peaks:?}");
        }
    }
}
