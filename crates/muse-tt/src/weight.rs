//! Weights `[N, K]` as products read them: columns of tiles of the transpose `[K, N]`, in pages of
//! several tiles.

use muse_core::Result;
use muse_core::contract::WeightView;
use muse_core::quant::tile::{SIDE, TileFormat};

use crate::buffer::Buffer;
use crate::device::Device;

/// How a weight is laid out.
///
/// A column of tiles of `[K, N]` is what 32 rows of `[N, K]` come to, so a weight is converted 32
/// rows at a time. A column has `steps` pages of `depth` tiles, the first of them `turn` pages
/// into the column, so that cores which read columns of their own side by side ask different banks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// How values are stored.
    pub format: TileFormat,
    /// Rows of the weight, columns of the product.
    pub rows: usize,
    /// Columns of the weight, what the product adds up over.
    pub cols: usize,
}

impl Layout {
    /// The most tiles of a page: larger ones would need several requests.
    const MOST: usize = 8;

    /// Tiles of a page.
    pub fn depth(&self) -> usize {
        let deep = self.cols.div_ceil(SIDE);
        (1..=Self::MOST).rev().find(|depth| deep.is_multiple_of(*depth)).unwrap_or(1)
    }

    /// Pages of a column.
    pub fn steps(&self) -> usize {
        self.cols.div_ceil(SIDE) / self.depth()
    }

    /// Columns of tiles.
    pub fn columns(&self) -> usize {
        self.rows.div_ceil(SIDE)
    }

    /// How much further than in the column before a column begins. With an odd number of pages
    /// columns begin at different banks by themselves.
    pub fn turning(&self) -> usize {
        usize::from(self.steps().is_multiple_of(2))
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.depth() * self.format.bytes()
    }

    /// Bytes of a column.
    pub fn column_bytes(&self) -> usize {
        self.steps() * self.page_bytes()
    }

    /// Bytes of the weight.
    pub fn bytes(&self) -> usize {
        self.columns() * self.column_bytes()
    }

    /// Column of tiles `column`, which is what `values`, 32 rows of the weight or the last ones,
    /// come to.
    pub fn encode(&self, column: usize, values: &[f32]) -> Vec<u8> {
        let mut bytes = self.format.tilize_transposed(values, self.cols);
        let turn = column * self.turning() % self.steps();
        bytes.rotate_right(turn * self.page_bytes());
        bytes
    }

    /// The columns of tiles of a checkpoint's matrix in order, decoded 32 rows at a time.
    pub(crate) fn encode_all<'a>(
        &'a self,
        view: &'a WeightView<'_>,
    ) -> impl Iterator<Item = Vec<u8>> + 'a {
        let row = view.format.bytes_for(view.cols);
        let mut values = vec![0.0; SIDE * view.cols];
        view.bytes.chunks(SIDE * row).enumerate().map(move |(column, stripe)| {
            let values = &mut values[..stripe.len() / row * view.cols];
            view.format.decode(stripe, values);
            self.encode(column, values)
        })
    }
}

/// A weight on a device.
pub struct Weight {
    pub(crate) buffer: Buffer,
    layout: Layout,
}

impl Weight {
    /// The weight of `values`, rows of `cols` values.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when the device has no room.
    pub fn of(device: &Device, format: TileFormat, values: &[f32], cols: usize) -> Result<Self> {
        let layout = Layout { format, rows: values.len() / cols, cols };
        let stripes = values.chunks(SIDE * cols).enumerate();
        let bytes: Vec<u8> = stripes.flat_map(|(at, stripe)| layout.encode(at, stripe)).collect();
        Self::of_bytes(device, layout, &bytes)
    }

    /// A weight that is encoded already.
    ///
    /// # Errors
    /// As [`Weight::of`].
    pub fn of_bytes(device: &Device, layout: Layout, bytes: &[u8]) -> Result<Self> {
        let page = layout.page_bytes() as u32;
        let buffer = Buffer::new(device, layout.bytes() as u64, page)?;
        buffer.write(bytes)?;
        Ok(Self { buffer, layout })
    }

    /// How it is laid out.
    pub fn layout(&self) -> Layout {
        self.layout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_column_begin_one_further_than_in_the_column_before() {
        let layout = Layout { format: TileFormat::F32, rows: 70, cols: 1024 };
        assert_eq!((layout.depth(), layout.steps(), layout.columns()), (8, 4, 3));
        let stripe = |rows: usize| -> Vec<f32> { (0..rows * 1024).map(|i| i as f32).collect() };
        let whole = TileFormat::F32.tilize_transposed(&stripe(32), 1024);
        let page = layout.page_bytes();
        for column in 0..3 {
            let turned = layout.encode(column, &stripe(32));
            let place = |step: usize| (step + column) % 4 * page;
            for step in 0..4 {
                let (from, to) = (step * page, place(step));
                assert_eq!(turned[to..to + page], whole[from..from + page], "{column}, {step}");
            }
        }
        assert_eq!(layout.encode(2, &stripe(6)).len(), layout.column_bytes());
    }

    #[test]
    fn columns_side_by_side_begin_at_different_banks() {
        for cols in [256, 2048, 4096, 6656, 19_968, 33_280] {
            let layout = Layout { format: TileFormat::Bfp4, rows: 6656, cols };
            let (steps, turning) = (layout.steps(), layout.turning());
            let bank = |column: usize| (column * steps + column * turning % steps) % 8;
            for step in 0..layout.columns() - 8 {
                let mut banks: Vec<_> = (step..step + 8).map(bank).collect();
                banks.sort_unstable();
                banks.dedup();
                assert!(banks.len() >= 4, "{cols}: banks {banks:?} of columns from {step}");
            }
        }
    }
}
