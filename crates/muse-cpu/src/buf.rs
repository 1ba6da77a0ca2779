//! Activations and weights in memory.

use std::fmt;
use std::ops::Range;

use muse_core::Result;
use muse_core::contract::WeightView;
use muse_core::quant::Format;

use crate::aligned::Aligned;
use crate::kernels::Isa;
use crate::layout::Layout;
use crate::pool::Pool;
use crate::quant::{PackedFormat, PanelKernels, packed_format};

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

    /// Rows `range`, one after the other.
    pub(crate) fn rows(&self, range: Range<usize>) -> &[f32] {
        self.check(&range);
        &self.data[range.start * self.cols..range.end * self.cols]
    }

    /// Rows `range`, one after the other.
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

/// A weight matrix `[rows, cols]`.
pub struct Weight {
    format: Format,
    rows: usize,
    cols: usize,
    storage: Storage,
}

/// How a weight is stored.
pub(crate) enum Storage {
    /// The bytes of the file, which kernels decode as they multiply.
    InPlace(Layout, Aligned<u8>),
    /// The bytes of the file, of which some rows at a time are decoded to `f32` before they are
    /// multiplied.
    DecodeFirst(Aligned<u8>),
    /// Repacked into panels.
    Packed(&'static PackedFormat, PanelKernels, Aligned<u8>),
}

impl Weight {
    /// Loads a weight. `exact` keeps the bytes of the file, so that activations are multiplied in
    /// full precision.
    pub(crate) fn load(view: &WeightView<'_>, pool: &Pool, isa: Isa, exact: bool) -> Result<Self> {
        let &WeightView { format, rows, cols, .. } = view;
        let expect = format.bytes_for(rows * cols);
        assert_eq!(view.bytes.len(), expect, "bytes of {} [{rows}, {cols}]", view.name);
        let storage = match (packing(format, isa, exact), Layout::of(format)) {
            (Some((packed, kernels)), _) => {
                Storage::Packed(packed, kernels, packed.repack(view, pool)?)
            }
            (None, Some(layout)) => Storage::InPlace(layout, copied(&view.bytes)?),
            (None, None) => Storage::DecodeFirst(copied(&view.bytes)?),
        };
        Ok(Self { format, rows, cols, storage })
    }

    /// Bytes of memory that [`Weight::load`] allocates.
    pub(crate) fn bytes_for(
        format: Format,
        rows: usize,
        cols: usize,
        isa: Isa,
        exact: bool,
    ) -> usize {
        match packing(format, isa, exact) {
            Some((packed, _)) => packed.bytes_for(rows, cols),
            None => format.bytes_for(rows * cols),
        }
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The bytes of rows `range` of a weight that is stored as in the file.
    pub(crate) fn file_rows<'a>(&self, bytes: &'a [u8], range: Range<usize>) -> &'a [u8] {
        let width = self.format.bytes_for(self.cols);
        &bytes[range.start * width..range.end * width]
    }

    /// Decodes a row.
    pub(crate) fn decode_row(&self, row: usize, out: &mut [f32]) {
        match &self.storage {
            Storage::InPlace(_, bytes) | Storage::DecodeFirst(bytes) => {
                self.format.decode(self.file_rows(bytes, row..row + 1), out);
            }
            Storage::Packed(format, _, packed) => format.decode_row(packed, row, out),
        }
    }
}

/// The packed format that weights of a format are repacked to, if they are.
fn packing(format: Format, isa: Isa, exact: bool) -> Option<(&'static PackedFormat, PanelKernels)> {
    if exact { None } else { packed_format(format, isa) }
}

fn copied(bytes: &[u8]) -> Result<Aligned<u8>> {
    let mut copy = Aligned::zeroed(bytes.len())?;
    copy.copy_from_slice(bytes);
    Ok(copy)
}

impl fmt::Debug for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Weight[{}, {}] {}", self.rows, self.cols, self.format)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn weights_take_as_many_bytes_as_predicted() {
        let pool = Pool::new(1).expect("a pool");
        let (rows, cols) = (21, 512);
        for &format in Format::ALL {
            let bytes = Cow::Owned(vec![0; format.bytes_for(rows * cols)]);
            let view = WeightView { name: "w", format, rows, cols, bytes };
            for (isa, exact) in [(Isa::best(), false), (Isa::scalar(), false), (Isa::best(), true)]
            {
                let weight = Weight::load(&view, &pool, isa, exact).expect("memory");
                let taken = match weight.storage() {
                    Storage::InPlace(_, bytes) | Storage::DecodeFirst(bytes) => bytes.len(),
                    Storage::Packed(_, _, bytes) => bytes.len(),
                };
                assert_eq!(Weight::bytes_for(format, rows, cols, isa, exact), taken, "{format}");
            }
        }
    }
}
