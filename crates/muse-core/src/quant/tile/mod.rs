//! Tiles of 32 x 32 values as Tenstorrent devices store them: the order of values in a tile, the
//! formats of tiles, and conversion of matrices to and from tiles.
//!
//! A tile is four faces of 16 x 16 values (upper left, upper right, lower left, lower right), each
//! row by row. A matrix is its tiles row by row; those at its lower and right edge are padded with
//! zeros.

mod bfp;
mod geometry;

pub use bfp::Bfp;
pub use geometry::{FACE, SIDE, VALUES, index_in_tile};

/// How the values of a tile are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TileFormat {
    /// 4 bytes per value.
    F32,
    /// 2 bytes per value.
    Bf16,
    /// A byte per value and an exponent for the 16 values of each face row.
    Bfp8,
    /// 4 bits per value and an exponent for the 16 values of each face row.
    Bfp4,
}

impl TileFormat {
    /// Every format.
    pub const ALL: &[Self] = &[Self::F32, Self::Bf16, Self::Bfp8, Self::Bfp4];

    /// The format's name, as Tenstorrent's tools print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::Bf16 => "BF16",
            Self::Bfp8 => "BFP8_B",
            Self::Bfp4 => "BFP4_B",
        }
    }

    /// The block floating point format, if it is one.
    pub const fn bfp(self) -> Option<Bfp> {
        match self {
            Self::F32 | Self::Bf16 => None,
            Self::Bfp8 => Some(Bfp::EIGHT),
            Self::Bfp4 => Some(Bfp::FOUR),
        }
    }

    /// Bytes of a tile.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4 * VALUES,
            Self::Bf16 => 2 * VALUES,
            Self::Bfp8 => Bfp::EIGHT.tile_bytes(),
            Self::Bfp4 => Bfp::FOUR.tile_bytes(),
        }
    }

    /// Encodes a tile; values are in the order of its faces. BF16 rounds ties to even.
    pub fn encode(self, values: &[f32; VALUES], bytes: &mut [u8]) {
        assert_eq!(bytes.len(), self.bytes(), "{} tile", self.name());
        match self {
            Self::F32 => put(values, bytes, f32::to_le_bytes),
            Self::Bf16 => put(values, bytes, |x| half::bf16::from_f32(x).to_le_bytes()),
            Self::Bfp8 => Bfp::EIGHT.encode_tile(values, bytes),
            Self::Bfp4 => Bfp::FOUR.encode_tile(values, bytes),
        }
    }

    /// Decodes a tile; values are in the order of its faces.
    pub fn decode(self, bytes: &[u8], values: &mut [f32; VALUES]) {
        assert_eq!(bytes.len(), self.bytes(), "{} tile", self.name());
        match self {
            Self::F32 => take(bytes, values, f32::from_le_bytes),
            Self::Bf16 => take(bytes, values, |raw| half::bf16::from_le_bytes(raw).to_f32()),
            Self::Bfp8 => Bfp::EIGHT.decode_tile(bytes, values),
            Self::Bfp4 => Bfp::FOUR.decode_tile(bytes, values),
        }
    }

    /// Bytes of a matrix `[rows, cols]` in tiles.
    pub const fn matrix_bytes(self, rows: usize, cols: usize) -> usize {
        rows.div_ceil(SIDE) * cols.div_ceil(SIDE) * self.bytes()
    }

    /// Encodes a matrix `[rows, cols]`, given row by row, as tiles.
    pub fn tilize(self, matrix: &[f32], cols: usize) -> Vec<u8> {
        assert!(matrix.len().is_multiple_of(cols), "whole rows of {cols} values");
        let rows = matrix.len() / cols;
        self.tilize_by(rows, cols, |row, col| matrix[row * cols + col])
    }

    /// Encodes the transpose of a matrix `[rows, cols]`, given row by row, as tiles: weights are
    /// stored `[N, K]` and multiplied as `[K, N]`.
    pub fn tilize_transposed(self, matrix: &[f32], cols: usize) -> Vec<u8> {
        assert!(matrix.len().is_multiple_of(cols), "whole rows of {cols} values");
        let rows = matrix.len() / cols;
        self.tilize_by(cols, rows, |row, col| matrix[col * cols + row])
    }

    fn tilize_by(self, rows: usize, cols: usize, value: impl Fn(usize, usize) -> f32) -> Vec<u8> {
        let mut bytes = vec![0; self.matrix_bytes(rows, cols)];
        let tiles_per_row = cols.div_ceil(SIDE);
        for (tile, bytes) in bytes.chunks_exact_mut(self.bytes()).enumerate() {
            let (down, right) = (tile / tiles_per_row * SIDE, tile % tiles_per_row * SIDE);
            let mut values = [0.0; VALUES];
            for row in 0..SIDE.min(rows - down) {
                for col in 0..SIDE.min(cols - right) {
                    values[index_in_tile(row, col)] = value(down + row, right + col);
                }
            }
            self.encode(&values, bytes);
        }
        bytes
    }

    /// Decodes tiles to the matrix `[rows, cols]`, row by row.
    pub fn untilize(self, tiles: &[u8], rows: usize, cols: usize) -> Vec<f32> {
        assert_eq!(tiles.len(), self.matrix_bytes(rows, cols), "{} tiles", self.name());
        let mut matrix = vec![0.0; rows * cols];
        let tiles_per_row = cols.div_ceil(SIDE);
        let mut values = [0.0; VALUES];
        for (tile, bytes) in tiles.chunks_exact(self.bytes()).enumerate() {
            let (down, right) = (tile / tiles_per_row * SIDE, tile % tiles_per_row * SIDE);
            self.decode(bytes, &mut values);
            for row in 0..SIDE.min(rows - down) {
                for col in 0..SIDE.min(cols - right) {
                    matrix[(down + row) * cols + right + col] = values[index_in_tile(row, col)];
                }
            }
        }
        matrix
    }
}

fn put<const B: usize>(values: &[f32], bytes: &mut [u8], encode: impl Fn(f32) -> [u8; B]) {
    for (word, &value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
        *word = encode(value);
    }
}

fn take<const B: usize>(bytes: &[u8], values: &mut [f32], decode: impl Fn([u8; B]) -> f32) {
    for (value, word) in values.iter_mut().zip(bytes.as_chunks().0) {
        *value = decode(*word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untilize_inverts_tilize_for_any_shape() {
        for (rows, cols) in [(1, 1), (32, 32), (33, 31), (5, 100), (70, 64)] {
            let matrix: Vec<f32> = (0..rows * cols).map(|i| i as f32).collect();
            let tiles = TileFormat::F32.tilize(&matrix, cols);
            assert_eq!(TileFormat::F32.untilize(&tiles, rows, cols), matrix, "[{rows}, {cols}]");
            let transposed = TileFormat::F32.tilize_transposed(&matrix, cols);
            let transposed = TileFormat::F32.untilize(&transposed, cols, rows);
            for (i, value) in transposed.iter().enumerate() {
                assert_eq!(*value, matrix[i % rows * cols + i / rows], "[{cols}, {rows}] at {i}");
            }
        }
    }

    #[test]
    fn padding_of_a_tile_is_zero() {
        let tiles = TileFormat::F32.tilize(&[1.0; 33], 33);
        let ones = tiles.as_chunks::<4>().0.iter().filter(|word| **word != [0; 4]).count();
        assert_eq!((tiles.len(), ones), (2 * TileFormat::F32.bytes(), 33));
    }
}
