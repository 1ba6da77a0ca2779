//! Rows that the host writes and reads in the middle of a matrix.

use muse_core::Result;

use super::{Bench, Case, On, Outcome, case, values};
use crate::lane::Needs;

const ROWS: usize = 100;
const COLS: usize = 40;

/// One case: no core takes part.
pub(super) fn cases() -> impl Iterator<Item = Case> {
    let run = |bench: &mut Bench| bench.transfer();
    [case("transfer", ROWS, COLS, On::One, true, Needs::Little, run)].into_iter()
}

impl Bench {
    /// Rows inside a row of tiles, whole ones, and over the end of one.
    fn transfer(&mut self) -> Result<Outcome> {
        let mut want = values(ROWS * COLS, 41);
        let matrix = self.on_device(&want, COLS)?;
        for (seed, rows) in [(42, 33..34), (43, 64..96), (44, 90..ROWS)] {
            let new = values(rows.len() * COLS, seed);
            matrix.write_rows(rows.start, &new)?;
            want[rows.start * COLS..rows.end * COLS].copy_from_slice(&new);
        }
        let mut got = matrix.read()?;
        for rows in [31..65, 64..96, 99..ROWS] {
            want.extend_from_within(rows.start * COLS..rows.end * COLS);
            got.extend(matrix.read_rows(rows)?);
        }
        Ok(Outcome::exact(&got, &want))
    }
}
