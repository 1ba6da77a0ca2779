//! CPU time of the calling thread, for tests that bound what an operation costs.

use std::time::{Duration, Instant};
use std::{fs, thread};

/// Measures the CPU time of the thread that started it. Unlike wall time, it does not grow while the
/// machine runs other work. Systems that do not report it give wall time instead.
#[derive(Clone, Copy, Debug)]
pub struct CpuTimer {
    wall: Instant,
    cpu: Option<Duration>,
}

impl CpuTimer {
    /// Starts the measurement.
    pub fn start() -> Self {
        Self { wall: Instant::now(), cpu: thread_cpu_time() }
    }

    /// CPU time since the start, to a few milliseconds.
    pub fn elapsed(&self) -> Duration {
        match (self.cpu, thread_cpu_time()) {
            (Some(start), Some(now)) => now.saturating_sub(start),
            _ => self.wall.elapsed(),
        }
    }
}

/// Linux's count of the time that this thread had a core, in nanoseconds.
fn thread_cpu_time() -> Option<Duration> {
    // The count is updated when the scheduler looks at the thread.
    thread::yield_now();
    let counts = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    counts.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn computing_counts_and_waiting_does_not() {
        let timer = CpuTimer::start();
        thread::sleep(Duration::from_millis(300));
        assert!(timer.elapsed() < Duration::from_millis(150), "{:?}", timer.elapsed());
        // Ends as soon as the thread had a core for long enough.
        while timer.elapsed() < Duration::from_millis(200) {}
    }
}
