//! What a pass must read and compute at least, and what the device manages at most: the time that
//! no kernel can beat.

use std::time::Duration;

use muse_core::contract::WeightSource;
use muse_core::quant::Format;
use muse_core::{Error, Result};

use super::{BACKENDS, bytes, text_tensors};

/// Bytes read and operations done in a second, at most, by all threads together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceilings {
    /// Bytes from memory.
    pub read: f64,
    /// Operations of products of bytes, two a product. Those in single precision where the device
    /// has no such products, as for `bf16`.
    pub int8: f64,
    /// Operations of products of upper halves of floats.
    pub bf16: f64,
    /// Operations of products in single precision.
    pub f32: f64,
}

impl Ceilings {
    /// Measures the device with so many threads, some milliseconds for each ceiling.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a backend that cannot say, [`Error::Exhausted`] when there is no
    /// memory to read.
    pub fn measure(backend: Option<&str>, threads: usize, time: Duration) -> Result<Self> {
        match backend.or(BACKENDS.first().copied()).unwrap_or("none") {
            #[cfg(feature = "cpu")]
            "cpu" => {
                let peaks = muse_cpu::Peaks::measure(threads, time)?;
                Ok(Self {
                    read: peaks.read,
                    int8: peaks.int8.unwrap_or(peaks.f32),
                    bf16: peaks.bf16.unwrap_or(peaks.f32),
                    f32: peaks.f32,
                })
            }
            name => Err(Error::Unsupported(format!("backend {name} has no ceilings to measure"))),
        }
    }

    /// The larger of each: other work on the machine only ever takes away.
    pub fn or(self, other: Self) -> Self {
        Self {
            read: self.read.max(other.read),
            int8: self.int8.max(other.int8),
            bf16: self.bf16.max(other.bf16),
            f32: self.f32.max(other.f32),
        }
    }
}

/// What the matrices of some tensors cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Their bytes in the file.
    pub bytes: u64,
    /// Operations a row, two a weight, of the matrices whose type is multiplied as bytes.
    pub int8: f64,
    /// Of those multiplied as upper halves of floats.
    pub bf16: f64,
    /// Of those multiplied in single precision.
    pub f32: f64,
}

impl Cost {
    fn add(&mut self, format: Format, bytes: u64, weights: usize) {
        self.bytes += bytes;
        *match format {
            Format::Bf16 => &mut self.bf16,
            Format::F32 | Format::F16 => &mut self.f32,
            _ => &mut self.int8,
        } += 2.0 * weights as f64;
    }

    /// Operations a row.
    pub fn operations(&self) -> f64 {
        self.int8 + self.bf16 + self.f32
    }

    fn arithmetic(&self, rows: usize, most: &Ceilings) -> f64 {
        let a_row = self.int8 / most.int8 + self.bf16 / most.bf16 + self.f32 / most.f32;
        a_row * rows as f64
    }
}

/// What the matrices of a model cost. Norms, attention and the embedding, of which a pass reads
/// single rows, are left out: they are little beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Of the layers, for every row.
    pub body: Cost,
    /// Of the head, for scored rows.
    pub head: Cost,
}

impl Work {
    pub(super) fn of(source: &dyn WeightSource) -> Self {
        let mut work = Self::default();
        for tensor in text_tensors(source).filter(|tensor| tensor.rows > 1) {
            let part = match tensor.name.as_str() {
                "token_embd.weight" => continue,
                "output.weight" => &mut work.head,
                _ => &mut work.body,
            };
            part.add(tensor.format, bytes(tensor), tensor.rows * tensor.cols);
        }
        work
    }

    /// The time that a pass of `rows` rows, `scored` of them scored, takes at least: that of
    /// reading the file's bytes of every matrix once, or of multiplying.
    pub fn least(&self, rows: usize, scored: usize, most: &Ceilings) -> Duration {
        let head = if scored > 0 { self.head.bytes } else { 0 };
        let reads = (self.body.bytes + head) as f64 / most.read;
        let computes = self.body.arithmetic(rows, most) + self.head.arithmetic(scored, most);
        Duration::from_secs_f64(reads.max(computes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Ceilings = Ceilings { read: 10.0, int8: 400.0, bf16: 200.0, f32: 100.0 };

    #[test]
    fn the_slower_of_reading_and_computing_binds() {
        let mut work = Work::default();
        work.body.add(Format::Q4K, 50, 200);
        work.body.add(Format::Bf16, 150, 100);
        work.head.add(Format::F32, 100, 50);
        assert_eq!(work.body.operations(), 600.0);
        // 200 bytes; 400 / 400 + 200 / 200 seconds a row.
        assert_eq!(work.least(1, 0, &MOST).as_secs_f64(), 20.0);
        assert_eq!(work.least(100, 0, &MOST).as_secs_f64(), 200.0);
        // The head's 100 bytes once, its 100 / 100 seconds for each scored row.
        assert_eq!(work.least(1, 1, &MOST).as_secs_f64(), 30.0);
        assert_eq!(work.least(100, 7, &MOST).as_secs_f64(), 207.0);
    }

    #[test]
    fn the_best_of_two_measurements_counts() {
        let other = Ceilings { read: 20.0, int8: 1.0, bf16: 300.0, f32: 100.0 };
        let best = Ceilings { read: 20.0, int8: 400.0, bf16: 300.0, f32: 100.0 };
        assert_eq!(MOST.or(other), best);
    }
}
