//! Converts the rows of one tensor to another format and order on several threads, and measures the
//! error.

use muse_core::contract::WeightView;
use muse_core::quant::{Encoder, Format};

use super::plan::RowOrder;

/// Values converted between two writes.
const CHUNK_VALUES: usize = 1 << 22;

/// Sums of squared errors and squared values, added in the order of the rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SquaredError {
    error: f64,
    signal: f64,
}

impl SquaredError {
    pub(super) fn add(&mut self, other: Self) {
        self.error += other.error;
        self.signal += other.signal;
    }

    /// Root mean square of the error divided by that of the values.
    pub(super) fn relative(&self) -> f64 {
        if self.signal > 0.0 { (self.error / self.signal).sqrt() } else { 0.0 }
    }
}

/// Why a row cannot be written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RowError {
    /// The source has a value that is not finite.
    NotFinite { row: usize },
    /// The format cannot hold a finite value of the source.
    OutOfRange { row: usize, value: f32 },
}

/// The conversion of a tensor: from the source to rows of the file.
pub(super) struct Conversion<'a> {
    pub(super) source: &'a WeightView<'a>,
    /// Format in the file.
    pub(super) format: Format,
    pub(super) order: RowOrder,
    /// None copies the bytes of the source.
    pub(super) encoder: Option<Encoder>,
    /// One per column.
    pub(super) importance: Option<&'a [f32]>,
}

impl Conversion<'_> {
    /// Values per row of the file.
    fn width(&self) -> usize {
        if self.order == RowOrder::Summed { self.source.cols / 2 } else { self.source.cols }
    }

    /// Rows converted between two writes.
    pub(super) fn chunk_rows(&self, threads: usize) -> usize {
        (CHUNK_VALUES / self.width()).max(threads)
    }

    /// Bytes per row of the file.
    pub(super) fn row_bytes(&self) -> usize {
        self.format.bytes_for(self.width())
    }

    /// Converts the rows from `first` on that fill `out`.
    pub(super) fn run(
        &self,
        first: usize,
        out: &mut [u8],
        threads: usize,
    ) -> Result<SquaredError, RowError> {
        let bytes = self.row_bytes();
        let share = (out.len() / bytes).div_ceil(threads) * bytes;
        let mut results = Vec::new();
        std::thread::scope(|scope| {
            let shares = out.chunks_mut(share).enumerate();
            let threads: Vec<_> = shares
                .map(|(i, out)| scope.spawn(move || self.rows(first + i * share / bytes, out)))
                .collect();
            for thread in threads {
                results
                    .push(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
        });
        let mut sum = SquaredError::default();
        // Added row by row: the sum does not depend on the number of threads.
        for errors in results {
            errors?.into_iter().for_each(|error| sum.add(error));
        }
        Ok(sum)
    }

    fn rows(&self, first: usize, out: &mut [u8]) -> Result<Vec<SquaredError>, RowError> {
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
    ) -> Result<SquaredError, RowError> {
        let from =
            if self.source.rows > 1 { self.order.source_row(row, self.source.rows) } else { row };
        let bytes = self.source.format.bytes_for(self.source.cols);
        let bytes = &self.source.bytes[from * bytes..][..bytes];
        self.source.format.decode(bytes, values);
        if values.iter().any(|value| !value.is_finite()) {
            return Err(RowError::NotFinite { row });
        }
        let Some(encoder) = self.encoder else {
            out.copy_from_slice(bytes);
            return Ok(SquaredError::default());
        };
        let values = match self.order {
            RowOrder::Same => values,
            RowOrder::Summed => {
                let (sum, other) = values.split_at_mut(check.len());
                sum.iter_mut().zip(other).for_each(|(sum, other)| *sum += *other);
                sum
            }
            RowOrder::Interleaved { .. } if self.source.rows > 1 => values,
            RowOrder::Interleaved { .. } => {
                let width = values.len();
                for (i, value) in check.iter_mut().enumerate() {
                    *value = values[self.order.source_row(i, width)];
                }
                values.copy_from_slice(check);
                values
            }
        };
        encoder.encode(values, self.importance, out);
        self.format.decode(out, check);
        if check.iter().any(|got| !got.is_finite()) {
            let larger = |x: f32, y: f32| if y.abs() > x.abs() { y } else { x };
            return Err(RowError::OutOfRange {
                row,
                value: values.iter().copied().fold(0.0, larger),
            });
        }
        let mut error = SquaredError::default();
        for (&value, &got) in values.iter().zip(&*check) {
            let miss = f64::from(value) - f64::from(got);
            error.add(SquaredError {
                error: miss * miss,
                signal: f64::from(value) * f64::from(value),
            });
        }
        Ok(error)
    }
}
