//! Activations and weights in memory.

use std::fmt;
use std::ops::Range;

use muse_core::Result;
use muse_core::contract::WeightView;

use crate::aligned::Aligned;
use crate::layout::Layout;

/// A row-major `f32` matrix of activations.
pub struct Buf {
    rows: usize,
    cols: usize,
    data: Aligned<f32>,
}

impl Buf {
    pub(crate) fn zeroed(rows: usize, cols: usize) -> Result<Self> {
        // A product that overflows is refused as too large, not wrapped.
        let data = Aligned::zeroed(rows.saturating_mul(cols))?;
        Ok(Self { rows, cols, data })
    }

    pub(crate) fn cols(&self) -> usize {
        self.cols
    }

    /// Rows `range`, side by side.
    pub(crate) fn rows(&self, range: Range<usize>) -> &[f32] {
        self.check(&range);
        &self.data[range.start * self.cols..range.end * self.cols]
    }

    /// Rows `range`, side by side.
    pub(crate) fn rows_mut(&mut self, range: Range<usize>) -> &mut [f32] {
        self.check(&range);
        &mut self.data[range.start * self.cols..range.end * self.cols]
    }

    fn check(&self, range: &Range<usize>) {
        assert!(range.end <= self.rows, "rows {range:?} of a buffer with {} rows", self.rows);
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf[{}, {}]", self.rows, self.cols)
    }
}

/// A weight matrix `[rows, cols]` in the bytes of its format; kernels decode as they multiply.
pub struct Weight {
    layout: Layout,
    rows: usize,
    cols: usize,
    bytes: Aligned<u8>,
}

impl Weight {
    /// Copies the bytes; a format no kernel reads in place is decoded to `f32`.
    pub(crate) fn load(view: &WeightView<'_>) -> Result<Self> {
        let (rows, cols) = (view.rows, view.cols);
        let layout = Layout::of(view.format).unwrap_or(Layout::F32);
        let expect = view.format.bytes_for(rows * cols);
        assert_eq!(view.bytes.len(), expect, "bytes of {} [{rows}, {cols}]", view.name);
        let mut bytes = Aligned::zeroed(layout.format().bytes_for(rows * cols))?;
        if layout.format() == view.format {
            bytes.copy_from_slice(&view.bytes);
        } else {
            layout.encode(&view.to_f32(), &mut bytes);
        }
        Ok(Self { layout, rows, cols, bytes })
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.layout.format().bytes_for(self.cols)
    }

    /// Bytes of rows `range`, side by side.
    pub(crate) fn rows(&self, range: Range<usize>) -> &[u8] {
        let width = self.row_bytes();
        &self.bytes[range.start * width..range.end * width]
    }
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weight[{}, {}] {}", self.rows, self.cols, self.layout.format())
    }
}
