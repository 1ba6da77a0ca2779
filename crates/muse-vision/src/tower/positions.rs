//! The learned table of positions, interpolated to the grid of a picture.

/// Which point of the table a patch of a grid that is not square reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableOrder {
    /// Its own row and column: what most implementations and the checkpoints' users do.
    #[default]
    Straight,
    /// The raster index of the patch read on a grid of exchanged sides, as transformers does: it
    /// shears the positions of every picture that is not square.
    Swapped,
}

/// What lies around the table. Grids larger than the table reach half a cell over its border.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableBorder {
    /// Zeros, as in transformers.
    #[default]
    Zero,
    /// The nearest value of the table, as in llama.cpp.
    Clamp,
}

/// The table of positions.
#[derive(Clone, Debug)]
pub(crate) struct PositionTable {
    /// `[sides.0 · sides.1, hidden]`
    values: Vec<f32>,
    /// Cells down and across.
    sides: (usize, usize),
    order: TableOrder,
    border: TableBorder,
}

impl PositionTable {
    pub(crate) fn new(
        values: Vec<f32>,
        sides: (usize, usize),
        order: TableOrder,
        border: TableBorder,
    ) -> Self {
        Self { values, sides, order, border }
    }

    /// Writes the position of the patch with a raster index of a grid `(down, across)` to `out`
    /// `[hidden]`: bilinear between the centres of cells, without smoothing when the grid is smaller
    /// than the table.
    pub(crate) fn interpolate(&self, patch: usize, grid: (usize, usize), out: &mut [f32]) {
        let (rows, cols) = match self.order {
            TableOrder::Straight => grid,
            TableOrder::Swapped => (grid.1, grid.0),
        };
        let down = self.neighbours(patch / cols, rows, self.sides.0);
        let across = self.neighbours(patch % cols, cols, self.sides.1);
        out.fill(0.0);
        for (row, row_weight) in down.into_iter().flatten() {
            for (col, col_weight) in across.into_iter().flatten() {
                let weight = row_weight * col_weight;
                let cell = &self.values[(row * self.sides.1 + col) * out.len()..][..out.len()];
                out.iter_mut().zip(cell).for_each(|(out, value)| *out += weight * value);
            }
        }
    }

    /// The cells beside coordinate `index` of `of`, on a side of `cells` cells, with their weights;
    /// none outside the table when there are zeros.
    fn neighbours(&self, index: usize, of: usize, cells: usize) -> [Option<(usize, f32)>; 2] {
        let at = (index as f64 + 0.5) * cells as f64 / of as f64 - 0.5;
        let last = cells as i64 - 1;
        [at.floor(), at.floor() + 1.0].map(|cell| {
            let (weight, cell) = ((1.0 - (at - cell).abs()) as f32, cell as i64);
            match self.border {
                TableBorder::Zero => (0..=last).contains(&cell).then_some((cell as usize, weight)),
                TableBorder::Clamp => Some((cell.clamp(0, last) as usize, weight)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table whose cell `(y, x)` holds `[1, y, x]`.
    fn table(sides: (usize, usize), order: TableOrder, border: TableBorder) -> PositionTable {
        let cells =
            (0..sides.0 * sides.1).map(|i| [1.0, (i / sides.1) as f32, (i % sides.1) as f32]);
        PositionTable::new(cells.flatten().collect(), sides, order, border)
    }

    fn at(table: &PositionTable, patch: usize, grid: (usize, usize)) -> [f32; 3] {
        let mut out = [f32::NAN; 3];
        table.interpolate(patch, grid, &mut out);
        out
    }

    #[test]
    fn a_grid_of_the_table_s_size_reads_it_as_it_is() {
        for order in [TableOrder::Straight, TableOrder::Swapped] {
            let table = table((4, 4), order, TableBorder::Zero);
            for patch in 0..16 {
                let expect = [1.0, (patch / 4) as f32, (patch % 4) as f32];
                assert_eq!(at(&table, patch, (4, 4)), expect);
            }
        }
    }

    #[test]
    fn zeros_around_the_table_fade_the_border_of_larger_grids() {
        let table = table((32, 32), TableOrder::Straight, TableBorder::Zero);
        // At twice the size the outermost centres lie a quarter of a cell outside.
        assert_eq!(at(&table, 0, (64, 64))[0], 0.5625);
        assert_eq!(at(&table, 5, (64, 64))[0], 0.75);
        assert_eq!(at(&table, 64 * 64 - 1, (64, 64))[0], 0.5625);
        assert_eq!(at(&table, 64 + 1, (64, 64)), [1.0, 0.25, 0.25]);
    }

    #[test]
    fn clamping_repeats_the_border() {
        let table = table((32, 32), TableOrder::Straight, TableBorder::Clamp);
        assert_eq!(at(&table, 0, (64, 64)), [1.0, 0.0, 0.0]);
        assert_eq!(at(&table, 64 * 64 - 1, (64, 64)), [1.0, 31.0, 31.0]);
        assert_eq!(at(&table, 64 + 1, (64, 64)), [1.0, 0.25, 0.25]);
    }

    #[test]
    fn the_swapped_order_reads_the_raster_index_on_the_other_grid() {
        // Patch 7 of 2 x 6 is (1, 1); on a grid of 6 x 2 its index is that of (3, 1).
        let [straight, swapped] = [TableOrder::Straight, TableOrder::Swapped]
            .map(|order| at(&table((6, 6), order, TableBorder::Clamp), 7, (2, 6)));
        assert_eq!(straight, [1.0, 4.0, 1.0]);
        assert_eq!(swapped, [1.0, 3.0, 4.0]);
    }
}
