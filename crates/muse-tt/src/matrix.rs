//! What kernels work on: matrices in tiles, tables of rows, and numbers of rows.

use std::ops::Range;
use std::sync::Arc;

use muse_core::Result;
use muse_core::quant::tile::{SIDE, TileFormat};

use crate::buffer::Buffer;
use crate::device::Device;

/// A matrix in tiles, `[rows, cols]`, both filled up to whole tiles.
pub struct Matrix {
    pub(crate) buffer: Arc<Buffer>,
    format: TileFormat,
    rows: usize,
    cols: usize,
}

impl Matrix {
    /// A matrix of any values.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when the device has no room.
    pub fn new(device: &Device, format: TileFormat, rows: usize, cols: usize) -> Result<Self> {
        let (bytes, page) = (format.matrix_bytes(rows, cols) as u64, format.bytes() as u32);
        Ok(Self { buffer: Arc::new(Buffer::new(device, bytes, page)?), format, rows, cols })
    }

    /// A matrix of `values`, row by row.
    ///
    /// # Errors
    /// As [`Matrix::new`].
    pub fn of(device: &Device, format: TileFormat, values: &[f32], cols: usize) -> Result<Self> {
        let matrix = Self::new(device, format, values.len() / cols, cols)?;
        matrix.write(values)?;
        Ok(matrix)
    }

    /// The first `rows` rows, in the same memory.
    pub fn top(&self, rows: usize) -> Self {
        assert!(rows > 0 && rows <= self.rows, "{rows} rows of a matrix of {}", self.rows);
        let (buffer, format, cols) = (self.buffer.clone(), self.format, self.cols);
        Self { buffer, format, rows, cols }
    }

    /// Replaces all values.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn write(&self, values: &[f32]) -> Result<()> {
        assert_eq!(values.len(), self.rows * self.cols, "all values of the matrix");
        self.write_rows(0, values)
    }

    /// Replaces rows from `first` on. Only the rows of tiles that hold them are moved.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn write_rows(&self, first: usize, values: &[f32]) -> Result<()> {
        assert!(values.len().is_multiple_of(self.cols), "whole rows of {} values", self.cols);
        let rows = first..first + values.len() / self.cols;
        if rows.is_empty() {
            return Ok(());
        }
        let around = self.around(&rows);
        let tiles = match around == rows {
            true => self.format.tilize(values, self.cols),
            false => {
                let mut all = self.read_rows(around.clone())?;
                all[(rows.start - around.start) * self.cols..][..values.len()]
                    .copy_from_slice(values);
                self.format.tilize(&all, self.cols)
            }
        };
        self.buffer.write_at(self.first_byte(&around), &tiles)
    }

    /// All values, row by row.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn read(&self) -> Result<Vec<f32>> {
        self.read_rows(0..self.rows)
    }

    /// The values of some rows. Only the rows of tiles that hold them are moved.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn read_rows(&self, rows: Range<usize>) -> Result<Vec<f32>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let around = self.around(&rows);
        let mut tiles = vec![0; self.format.matrix_bytes(around.len(), self.cols)];
        self.buffer.read_at(self.first_byte(&around), &mut tiles)?;
        let mut values = self.format.untilize(&tiles, around.len(), self.cols);
        values.truncate((rows.end - around.start) * self.cols);
        values.drain(..(rows.start - around.start) * self.cols);
        Ok(values)
    }

    /// The rows that are in the same rows of tiles as these.
    fn around(&self, rows: &Range<usize>) -> Range<usize> {
        assert!(rows.end <= self.rows, "rows to {} of a matrix of {}", rows.end, self.rows);
        rows.start / SIDE * SIDE..rows.end.next_multiple_of(SIDE).min(self.rows)
    }

    /// Where rows begin that begin a row of tiles.
    fn first_byte(&self, rows: &Range<usize>) -> u64 {
        self.format.matrix_bytes(rows.start, self.cols) as u64
    }

    /// Its tiles as they lie on the device, with what fills them up.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn tiles(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes() as usize];
        self.buffer.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Bytes of its tiles.
    pub fn bytes(&self) -> u64 {
        self.format.matrix_bytes(self.rows, self.cols) as u64
    }

    /// How many tiles it has.
    pub fn tile_count(&self) -> u64 {
        self.bytes() / self.format.bytes() as u64
    }

    /// How values are stored.
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

    /// The device it lies on.
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }
}

/// Rows of BF16 values to gather from, each a page.
pub struct Table {
    pub(crate) buffer: Buffer,
    cols: usize,
}

impl Table {
    /// Bytes of a table on the device.
    pub fn bytes_for(rows: usize, cols: usize) -> usize {
        2 * rows * cols
    }

    /// A table of `values`, row by row; rows are whole tiles wide.
    ///
    /// # Errors
    /// As [`Matrix::new`].
    pub fn of(device: &Device, values: &[f32], cols: usize) -> Result<Self> {
        assert!(cols.is_multiple_of(SIDE), "rows of whole tiles, not of {cols} values");
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

    /// Rows.
    pub fn rows(&self) -> usize {
        (self.buffer.bytes() / self.row_bytes()) as usize
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        u64::from(self.buffer.page_bytes())
    }
}

/// Numbers that kernels read and write: rows to gather, positions, pages. In pages of equal width,
/// by custom one.
pub struct Ids {
    pub(crate) buffer: Buffer,
}

impl Ids {
    /// Pages are read whole and begin at multiples of this many bytes.
    const ALIGNMENT: usize = 64;

    /// The numbers, in one page.
    ///
    /// # Errors
    /// As [`Matrix::new`].
    pub fn of(device: &Device, numbers: &[u32]) -> Result<Self> {
        let mut ids = Self::in_pages(device, 1, numbers.len())?;
        ids.write(numbers)?;
        Ok(ids)
    }

    /// Pages with room for `width` numbers each, of any value.
    ///
    /// # Errors
    /// As [`Matrix::new`].
    pub fn in_pages(device: &Device, pages: usize, width: usize) -> Result<Self> {
        let page = (4 * width).next_multiple_of(Self::ALIGNMENT);
        Ok(Self { buffer: Buffer::new(device, (pages * page) as u64, page as u32)? })
    }

    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.buffer.bytes()
    }

    /// Replaces the numbers by as many or fewer, and zeros behind them.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn write(&mut self, numbers: &[u32]) -> Result<()> {
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        let room = self.buffer.bytes() / 4;
        assert!(numbers.len() as u64 <= room, "{} numbers into room for {room}", numbers.len());
        bytes.resize(self.buffer.bytes() as usize, 0);
        self.buffer.write(&bytes)
    }

    /// All numbers, with what fills pages up.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn read(&self) -> Result<Vec<u32>> {
        let mut bytes = vec![0; self.buffer.bytes() as usize];
        self.buffer.read(&mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// Pages.
    pub fn pages(&self) -> u32 {
        (self.buffer.bytes() / u64::from(self.buffer.page_bytes())) as u32
    }

    /// Panics when a page is too small for what a kernel takes from it.
    pub(crate) fn assert_room(&self, numbers: u32) {
        let room = self.buffer.page_bytes() / 4;
        assert!(numbers <= room, "{numbers} numbers of a page of {room}");
    }
}
