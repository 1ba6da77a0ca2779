//! The geometry of a tile: its size and the order of its values.

/// Rows and columns of a tile.
pub const SIDE: usize = 32;
/// Values of a tile.
pub const VALUES: usize = SIDE * SIDE;
/// Rows and columns of a face.
pub const FACE: usize = SIDE / 2;

/// Index of the value at `row`, `col` among the values of a tile.
pub const fn index_in_tile(row: usize, col: usize) -> usize {
    let face = row / FACE * 2 + col / FACE;
    (face * FACE + row % FACE) * FACE + col % FACE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_face_order() {
        let found = [(0, 0), (0, 15), (0, 16), (1, 0), (15, 31), (16, 0), (31, 31)];
        assert_eq!(
            found.map(|(row, col)| index_in_tile(row, col)),
            [0, 15, 256, 16, 511, 512, 1023]
        );
    }
}
