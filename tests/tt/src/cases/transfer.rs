//! Transfers of rows in the middle of a matrix.

use muse_core::Result;

use super::{Case, CoreSet, Harness, Outcome, case, values};
use crate::lane::Requirement;

const ROWS: usize = 100;
const COLS: usize = 40;

/// One case, because no core takes part.
pub(super) fn cases() -> impl Iterator<Item = Case> {
    let run = |harness: &mut Harness| harness.transfer();
    [case("transfer", ROWS, COLS, CoreSet::One, true, Requirement::Basic, run)].into_iter()
}

impl Harness {
    /// Rows inside a row of tiles, a whole row of tiles, and rows of two rows of tiles.
    fn transfer(&mut self) -> Result<Outcome> {
        let mut reference = values(ROWS * COLS, 41);
        let matrix = self.on_device(&reference, COLS)?;
        for (seed, rows) in [(42, 33..34), (43, 64..96), (44, 90..ROWS)] {
            let new = values(rows.len() * COLS, seed);
            matrix.write_rows(rows.start, &new)?;
            reference[rows.start * COLS..rows.end * COLS].copy_from_slice(&new);
        }
        let mut actual = matrix.read()?;
        for rows in [31..65, 64..96, 99..ROWS] {
            reference.extend_from_within(rows.start * COLS..rows.end * COLS);
            actual.extend(matrix.read_rows(rows)?);
        }
        Ok(Outcome::exact(&actual, &reference))
    }
}
