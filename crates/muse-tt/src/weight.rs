//! Weights `[N, K]` in the layout of the matmul kernel: columns of tiles of the transpose `[K, N]`,
//! in pages of several tiles.

use muse_core::Result;
use muse_core::contract::WeightView;
use muse_core::quant::tile::{SIDE, TileFormat};

use crate::buffer::Buffer;
use crate::device::Device;

/// How a weight is laid out.
///
/// A column of tiles of `[K, N]` consists of 32 rows of `[N, K]`, so that a weight is converted 32
/// rows at a time. A column has [`Self::steps`] pages of [`Self::depth`] tiles. Its pages are
/// rotated by [`Self::stagger`] more than those of the column before, so that cores that read
/// neighbouring columns read different banks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WeightLayout {
    /// The format of its values.
    pub format: TileFormat,
    /// Rows of the weight: N, the columns of the product.
    pub rows: usize,
    /// Columns of the weight: K, the dimension of the sums.
    pub cols: usize,
}

impl WeightLayout {
    /// A larger page would need several read requests.
    const MAX_TILES_PER_PAGE: usize = 8;

    /// Tiles per page.
    pub fn depth(&self) -> usize {
        let deep = self.cols.div_ceil(SIDE);
        (1..=Self::MAX_TILES_PER_PAGE).rev().find(|depth| deep.is_multiple_of(*depth)).unwrap_or(1)
    }

    /// Pages per column.
    pub fn steps(&self) -> usize {
        self.cols.div_ceil(SIDE) / self.depth()
    }

    /// Number of columns of tiles.
    pub fn columns(&self) -> usize {
        self.rows.div_ceil(SIDE)
    }

    /// Pages by which a column is rotated against the one before. Columns of an odd number of pages
    /// begin in different banks without rotation.
    pub fn stagger(&self) -> usize {
        usize::from(self.steps().is_multiple_of(2))
    }

    /// Bytes per page.
    pub fn page_bytes(&self) -> usize {
        self.depth() * self.format.bytes()
    }

    /// Bytes per column.
    pub fn column_bytes(&self) -> usize {
        self.steps() * self.page_bytes()
    }

    /// Bytes of the weight.
    pub fn bytes(&self) -> usize {
        self.columns() * self.column_bytes()
    }

    /// The bytes of column of tiles `column`, from `values`: its 32 rows of the weight, row-major,
    /// or fewer in the last column.
    pub fn encode_column(&self, column: usize, values: &[f32]) -> Vec<u8> {
        let mut bytes = self.format.tilize_transposed(values, self.cols);
        let rotation = column * self.stagger() % self.steps();
        bytes.rotate_right(rotation * self.page_bytes());
        bytes
    }

    /// All columns of tiles of a matrix of the checkpoint in order, decoded 32 rows at a time.
    pub(crate) fn encode_columns<'a>(
        &'a self,
        view: &'a WeightView<'_>,
    ) -> impl Iterator<Item = Vec<u8>> + 'a {
        let row = view.format.bytes_for(view.cols);
        let mut values = vec![0.0; SIDE * view.cols];
        view.bytes.chunks(SIDE * row).enumerate().map(move |(column, stripe)| {
            let values = &mut values[..stripe.len() / row * view.cols];
            view.format.decode(stripe, values);
            self.encode_column(column, values)
        })
    }
}

/// A weight on a device.
pub struct Weight {
    pub(crate) buffer: Buffer,
    layout: WeightLayout,
}

impl Weight {
    /// A weight of row-major `values`, `cols` of them per row.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when the device has not enough memory.
    pub fn from_values(
        device: &Device,
        format: TileFormat,
        values: &[f32],
        cols: usize,
    ) -> Result<Self> {
        let layout = WeightLayout { format, rows: values.len() / cols, cols };
        let stripes = values.chunks(SIDE * cols).enumerate();
        let bytes: Vec<u8> =
            stripes.flat_map(|(at, stripe)| layout.encode_column(at, stripe)).collect();
        Self::from_bytes(device, layout, &bytes)
    }

    /// A weight from its encoded columns.
    ///
    /// # Errors
    /// As [`Weight::from_values`].
    pub fn from_bytes(device: &Device, layout: WeightLayout, bytes: &[u8]) -> Result<Self> {
        let page = layout.page_bytes() as u32;
        let buffer = Buffer::new(device, layout.bytes() as u64, page)?;
        buffer.write(bytes)?;
        Ok(Self { buffer, layout })
    }

    /// How it is laid out.
    pub fn layout(&self) -> WeightLayout {
        self.layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_is_rotated_one_page_further_than_the_one_before() {
        let layout = WeightLayout { format: TileFormat::F32, rows: 70, cols: 1024 };
        assert_eq!((layout.depth(), layout.steps(), layout.columns()), (8, 4, 3));
        let stripe = |rows: usize| -> Vec<f32> { (0..rows * 1024).map(|i| i as f32).collect() };
        let whole = TileFormat::F32.tilize_transposed(&stripe(32), 1024);
        let page = layout.page_bytes();
        for column in 0..3 {
            let rotated = layout.encode_column(column, &stripe(32));
            let place = |step: usize| (step + column) % 4 * page;
            for step in 0..4 {
                let (from, to) = (step * page, place(step));
                assert_eq!(rotated[to..to + page], whole[from..from + page], "{column}, {step}");
            }
        }
        assert_eq!(layout.encode_column(2, &stripe(6)).len(), layout.column_bytes());
    }

    #[test]
    fn neighbouring_columns_begin_in_different_banks() {
        for cols in [256, 2048, 4096, 6656, 19_968, 33_280] {
            let layout = WeightLayout { format: TileFormat::Bfp4, rows: 6656, cols };
            let (steps, stagger) = (layout.steps(), layout.stagger());
            let bank = |column: usize| (column * steps + column * stagger % steps) % 8;
            for step in 0..layout.columns() - 8 {
                let mut banks: Vec<_> = (step..step + 8).map(bank).collect();
                banks.sort_unstable();
                banks.dedup();
                assert!(banks.len() >= 4, "{cols}: banks {banks:?} of columns from {step}");
            }
        }
    }
}
