//! Rows of one tensor in another format and order, by several threads, with what it cost.

use muse_core::contract::WeightView;
use muse_core::quant::{Encoder, Format};

use super::plan::Order;

/// Values that are converted between two writes.
const PIECE_VALUES: usize = 1 << 22;

/// Squared error and squared values of rows, in the order of the rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    error: f64,
    size: f64,
}

impl Cost {
    pub(super) fn add(&mut self, other: Self) {
        self.error += other.error;
        self.size += other.size;
    }

    /// Root of the mean squared error, as a share of the values' own.
    pub(super) fn relative(&self) -> f64 {
        if self.size > 0.0 { (self.error / self.size).sqrt() } else { 0.0 }
    }
}

/// Why a row cannot be written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    /// The source has a value that is not finite.
    Source { row: usize },
    /// A finite value that the format cannot hold.
    TooLarge { row: usize, value: f32 },
}

/// How rows of a source become rows of the file.
pub(super) struct Conversion<'a> {
    pub(super) source: &'a WeightView<'a>,
    /// Of the file.
    pub(super) format: Format,
    pub(super) order: Order,
    /// None copies the bytes.
    pub(super) encoder: Option<Encoder>,
    /// One a column.
    pub(super) importance: Option<&'a [f32]>,
}

impl Conversion<'_> {
    /// Values of a row of the file.
    fn width(&self) -> usize {
        if self.order == Order::Summed { self.source.cols / 2 } else { self.source.cols }
    }

    /// Rows that are converted between two writes.
    pub(super) fn piece(&self, threads: usize) -> usize {
        (PIECE_VALUES / self.width()).max(threads)
    }

    /// Bytes of a row of the file.
    pub(super) fn row_bytes(&self) -> usize {
        self.format.bytes_for(self.width())
    }

    /// Converts the rows from `first` on that fill `out`, on so many threads.
    pub(super) fn run(&self, first: usize, out: &mut [u8], threads: usize) -> Result<Cost, Fault> {
        let bytes = self.row_bytes();
        let share = (out.len() / bytes).div_ceil(threads) * bytes;
        let mut costs = Vec::new();
        std::thread::scope(|scope| {
            let shares = out.chunks_mut(share).enumerate();
            let threads: Vec<_> = shares
                .map(|(i, out)| scope.spawn(move || self.rows(first + i * share / bytes, out)))
                .collect();
            for thread in threads {
                costs.push(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
        });
        let mut sum = Cost::default();
        // The sum over rows does not depend on how many threads there are.
        for cost in costs {
            cost?.into_iter().for_each(|cost| sum.add(cost));
        }
        Ok(sum)
    }

    fn rows(&self, first: usize, out: &mut [u8]) -> Result<Vec<Cost>, Fault> {
        let mut values = vec![0.0; self.source.cols];
        let mut check = vec![0.0; self.width()];
        out.chunks_exact_mut(self.row_bytes())
            .zip(first..)
            .map(|(out, row)| self.row(row, &mut values, &mut check, out))
            .collect()
    }

    fn row(
        &self,
        row: usize,
        values: &mut [f32],
        check: &mut [f32],
        out: &mut [u8],
    ) -> Result<Cost, Fault> {
        let from = if self.source.rows > 1 { self.order.row(row, self.source.rows) } else { row };
        let bytes = self.source.format.bytes_for(self.source.cols);
        let bytes = &self.source.bytes[from * bytes..][..bytes];
        self.source.format.decode(bytes, values);
        if values.iter().any(|value| !value.is_finite()) {
            return Err(Fault::Source { row });
        }
        let Some(encoder) = self.encoder else {
            out.copy_from_slice(bytes);
            return Ok(Cost::default());
        };
        let values = match self.order {
            Order::Same => values,
            Order::Summed => {
                let (sum, other) = values.split_at_mut(check.len());
                sum.iter_mut().zip(other).for_each(|(sum, other)| *sum += *other);
                sum
            }
            Order::Interleaved { .. } if self.source.rows > 1 => values,
            Order::Interleaved { .. } => {
                let width = values.len();
                for (i, value) in check.iter_mut().enumerate() {
                    *value = values[self.order.row(i, width)];
                }
                values.copy_from_slice(check);
                values
            }
        };
        encoder.encode(values, self.importance, out);
        self.format.decode(out, check);
        if check.iter().any(|got| !got.is_finite()) {
            let larger = |x: f32, y: f32| if y.abs() > x.abs() { y } else { x };
            return Err(Fault::TooLarge { row, value: values.iter().copied().fold(0.0, larger) });
        }
        let mut cost = Cost::default();
        for (&value, &got) in values.iter().zip(&*check) {
            let miss = f64::from(value) - f64::from(got);
            cost.add(Cost { error: miss * miss, size: f64::from(value) * f64::from(value) });
        }
        Ok(cost)
    }
}
