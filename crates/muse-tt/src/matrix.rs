//! The operands of kernels: matrices in tiles, the embedding table, and buffers of indices.

use std::ops::Range;
use std::sync::Arc;

use muse_core::Result;
use muse_core::quant::tile::{SIDE, TileFormat};

use crate::buffer::Buffer;
use crate::device::Device;

/// A matrix `[rows, cols]` in tiles. Both dimensions are padded to whole tiles.
pub struct Matrix {
    pub(crate) buffer: Arc<Buffer>,
    format: TileFormat,
    rows: usize,
    cols: usize,
}

impl Matrix {
    /// An uninitialized matrix.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when the device has not enough memory.
    pub fn new(device: &Device, format: TileFormat, rows: usize, cols: usize) -> Result<Self> {
        let (bytes, page) = (format.matrix_bytes(rows, cols) as u64, format.bytes() as u32);
        Ok(Self { buffer: Arc::new(Buffer::new(device, bytes, page)?), format, rows, cols })
    }

    /// A matrix of row-major `values`.
    ///
    /// # Errors
    /// As [`Matrix::new`].
    pub fn from_values(
        device: &Device,
        format: TileFormat,
        values: &[f32],
        cols: usize,
    ) -> Result<Self> {
        let matrix = Self::new(device, format, values.len() / cols, cols)?;
        matrix.write(values)?;
        Ok(matrix)
    }

    /// The first `rows` rows as a matrix that shares the memory.
    pub fn first_rows(&self, rows: usize) -> Self {
        assert!(rows > 0 && rows <= self.rows, "{rows} rows of a matrix of {}", self.rows);
        let (buffer, format, cols) = (self.buffer.clone(), self.format, self.cols);
        Self { buffer, format, rows, cols }
    }

    /// Replaces all values; `values` are row-major.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn write(&self, values: &[f32]) -> Result<()> {
        assert_eq!(values.len(), self.rows * self.cols, "all values of the matrix");
        self.write_rows(0, values)
    }

    /// Replaces rows from `first` on. Only the rows of tiles that contain them are transferred.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn write_rows(&self, first: usize, values: &[f32]) -> Result<()> {
        assert!(values.len().is_multiple_of(self.cols), "whole rows of {} values", self.cols);
        let rows = first..first + values.len() / self.cols;
        if rows.is_empty() {
            return Ok(());
        }
        let covering = self.covering_rows(&rows);
        let tiles = match covering == rows {
            true => self.format.tilize(values, self.cols),
            false => {
                let mut all = self.read_rows(covering.clone())?;
                all[(rows.start - covering.start) * self.cols..][..values.len()]
                    .copy_from_slice(values);
                self.format.tilize(&all, self.cols)
            }
        };
        self.buffer.write_at(self.first_byte(&covering), &tiles)
    }

    /// All values, row-major.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn read(&self) -> Result<Vec<f32>> {
        self.read_rows(0..self.rows)
    }

    /// The values of `rows`, row-major. Only the rows of tiles that contain them are transferred.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn read_rows(&self, rows: Range<usize>) -> Result<Vec<f32>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let covering = self.covering_rows(&rows);
        let mut tiles = vec![0; self.format.matrix_bytes(covering.len(), self.cols)];
        self.buffer.read_at(self.first_byte(&covering), &mut tiles)?;
        let mut values = self.format.untilize(&tiles, covering.len(), self.cols);
        values.truncate((rows.end - covering.start) * self.cols);
        values.drain(..(rows.start - covering.start) * self.cols);
        Ok(values)
    }

    /// All rows of the rows of tiles that contain `rows`.
    fn covering_rows(&self, rows: &Range<usize>) -> Range<usize> {
        assert!(rows.end <= self.rows, "rows to {} of a matrix of {}", rows.end, self.rows);
        rows.start / SIDE * SIDE..rows.end.next_multiple_of(SIDE).min(self.rows)
    }

    /// Byte offset of `rows`, the first of which begins a row of tiles.
    fn first_byte(&self, rows: &Range<usize>) -> u64 {
        self.format.matrix_bytes(rows.start, self.cols) as u64
    }

    /// The bytes of its tiles on the device, padding included.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn tiles(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes() as usize];
        self.buffer.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Bytes of its tiles, padding included.
    pub fn bytes(&self) -> u64 {
        self.format.matrix_bytes(self.rows, self.cols) as u64
    }

    /// Number of tiles.
    pub fn tile_count(&self) -> u64 {
        self.bytes() / self.format.bytes() as u64
    }

    /// The format of its values.
    pub fn format(&self) -> TileFormat {
        self.format
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// Rows and columns of tiles.
    pub fn tile_shape(&self) -> (u32, u32) {
        (self.rows.div_ceil(SIDE) as u32, self.cols.div_ceil(SIDE) as u32)
    }

    /// The device that it is on.
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }
}

/// A row-major table of BF16 rows to gather from. Each row is a page.
pub struct EmbeddingTable {
    pub(crate) buffer: Buffer,
    cols: usize,
}

impl EmbeddingTable {
    /// Bytes of a table on the device.
    pub fn bytes_for(rows: usize, cols: usize) -> usize {
        2 * rows * cols
    }

    /// A table of row-major `values`. Rows are whole tiles wide.
    ///
    /// # Errors
    /// As [`Matrix::new`].
    pub fn from_values(device: &Device, values: &[f32], cols: usize) -> Result<Self> {
        assert!(cols.is_multiple_of(SIDE), "rows are whole tiles, not {cols} values");
        let buffer = Buffer::new(device, Self::bytes_for(1, values.len()) as u64, 2 * cols as u32)?;
        let bytes: Vec<u8> =
            values.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect();
        buffer.write(&bytes)?;
        Ok(Self { buffer, cols })
    }

    /// Width of a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        (self.buffer.bytes() / self.row_bytes()) as usize
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        u64::from(self.buffer.page_bytes())
    }
}

/// Indices that kernels read and write: rows to gather, positions, slots, segments. They are in
/// pages of equal width, most often in one page.
pub struct IndexBuffer {
    pub(crate) buffer: Buffer,
}

impl IndexBuffer {
    /// Kernels read whole pages, whose size is a multiple of this many bytes.
    const ALIGNMENT: usize = 64;

    /// The indices in one page.
    ///
    /// # Errors
    /// As [`Matrix::new`].
    pub fn from_values(device: &Device, indices: &[u32]) -> Result<Self> {
        let mut buffer = Self::with_pages(device, 1, indices.len())?;
        buffer.write(indices)?;
        Ok(buffer)
    }

    /// Uninitialized pages with space for `width` indices each.
    ///
    /// # Errors
    /// As [`Matrix::new`].
    pub fn with_pages(device: &Device, pages: usize, width: usize) -> Result<Self> {
        let page = (4 * width).next_multiple_of(Self::ALIGNMENT);
        Ok(Self { buffer: Buffer::new(device, (pages * page) as u64, page as u32)? })
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.buffer.bytes()
    }

    /// Replaces all indices by `indices`, followed by zeros.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn write(&mut self, indices: &[u32]) -> Result<()> {
        let mut bytes: Vec<u8> = indices.iter().flat_map(|index| index.to_le_bytes()).collect();
        let (count, capacity) = (indices.len(), self.buffer.bytes() / 4);
        assert!(count as u64 <= capacity, "{count} indices, but space for {capacity}");
        bytes.resize(self.buffer.bytes() as usize, 0);
        self.buffer.write(&bytes)
    }

    /// All indices, padding of the pages included.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn read(&self) -> Result<Vec<u32>> {
        let mut bytes = vec![0; self.buffer.bytes() as usize];
        self.buffer.read(&mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// Number of pages.
    pub fn pages(&self) -> u32 {
        (self.buffer.bytes() / u64::from(self.buffer.page_bytes())) as u32
    }

    /// Panics when a page is too small for the indices that a kernel reads from it.
    pub(crate) fn assert_capacity(&self, indices: u32) {
        let capacity = self.buffer.page_bytes() / 4;
        assert!(indices <= capacity, "{indices} indices in a page of {capacity}");
    }
}
