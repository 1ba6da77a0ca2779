//! Worker cores, and how work is distributed over them.

use muse_tt_sys::ffi::mtt_cores;

/// A worker core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Core {
    /// Column of the grid, from the left.
    pub column: u32,
    /// Row of the grid, from the top.
    pub row: u32,
}

/// The cores of a program: the first `count` cores of a grid, row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cores {
    columns: u32,
    count: u32,
}

impl Cores {
    /// All cores of `columns` by `rows`.
    pub fn grid(columns: u32, rows: u32) -> Self {
        Self { columns, count: columns * rows }
    }

    /// At most `units` of these cores, at least one.
    pub fn for_work(self, units: u32) -> Self {
        Self { count: self.count.min(units).max(1), ..self }
    }

    /// The rectangle of at most `units` of these cores whose busiest core has the least work; among
    /// equals the one with the most cores, then the widest.
    pub fn rectangle_for_work(self, units: u32) -> Self {
        let max = self.for_work(units).count;
        let widths = (1..=self.columns.min(max)).rev();
        let all = widths.flat_map(|columns| {
            let rows = 1..=(max / columns).min(self.count / self.columns);
            rows.map(move |rows| Self { columns, count: columns * rows })
        });
        let order = |cores: &Self| (units.max(1).div_ceil(cores.count), u32::MAX - cores.count);
        all.min_by_key(order).expect("one core is a rectangle")
    }

    /// How many there are.
    pub fn count(self) -> u32 {
        self.count
    }

    /// The first one.
    pub fn first(self) -> Core {
        self.core(0)
    }

    /// The last one.
    pub fn last(self) -> Core {
        self.core(self.count - 1)
    }

    /// Splits `units` of work into contiguous runs whose lengths differ by one at most: core, first
    /// unit, number of units.
    pub fn split(self, units: u32) -> impl Iterator<Item = (Core, u32, u32)> {
        let (each, more) = (units / self.count, units % self.count);
        (0..self.count)
            .map(move |i| (self.core(i), i * each + i.min(more), each + u32::from(i < more)))
    }

    /// Core `i`, row by row.
    pub(crate) fn core(self, i: u32) -> Core {
        Core { column: i % self.columns, row: i / self.columns }
    }

    /// These cores as rectangles, as the shim takes them.
    pub(crate) fn ranges(self) -> Vec<mtt_cores> {
        let (rows, rest) = (self.count / self.columns, self.count % self.columns);
        let full = mtt_cores { left: 0, top: 0, right: self.columns - 1, bottom: rows.max(1) - 1 };
        let part = mtt_cores { left: 0, top: rows, right: rest.max(1) - 1, bottom: rows };
        [(rows > 0).then_some(full), (rest > 0).then_some(part)].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_split_evenly_and_in_order() {
        for (columns, rows, units) in [(1, 1, 7), (4, 1, 7), (13, 10, 1000), (13, 10, 3)] {
            let cores = Cores::grid(columns, rows).for_work(units);
            let runs: Vec<_> = cores.split(units).collect();
            assert_eq!(runs.len() as u32, cores.count());
            let mut next = 0;
            for (_, first, count) in &runs {
                assert_eq!(*first, next);
                next += count;
            }
            assert_eq!(next, units);
            let counts = || runs.iter().map(|(_, _, count)| *count);
            assert!(counts().max().unwrap() - counts().min().unwrap() <= 1);
        }
    }

    #[test]
    fn ranges_cover_the_first_cores() {
        let cover = |cores: Cores| -> Vec<(u32, u32)> {
            let mut all = Vec::new();
            for range in cores.ranges() {
                let rows = range.top..=range.bottom;
                all.extend(rows.flat_map(|y| (range.left..=range.right).map(move |x| (x, y))));
            }
            all
        };
        for count in [1, 3, 4, 5, 8, 11] {
            let cores = Cores::grid(4, 3).for_work(count);
            let expected: Vec<_> =
                cores.split(count).map(|(core, _, _)| (core.column, core.row)).collect();
            assert_eq!(cover(cores), expected, "{count} cores");
        }
    }

    #[test]
    fn rectangles_minimize_the_work_of_the_busiest_core() {
        let (grid, row) = (Cores::grid(13, 10), Cores::grid(13, 1));
        for (from, units, count, last) in [
            (grid, 0, 1, (0, 0)),
            (grid, 1, 1, (0, 0)),
            (grid, 5, 5, (4, 0)),
            (grid, 16, 16, (7, 1)),
            (grid, 17, 16, (7, 1)),
            (grid, 40, 40, (9, 3)),
            (grid, 130, 130, (12, 9)),
            (grid, 144, 130, (12, 9)),
            (row, 16, 13, (12, 0)),
        ] {
            let cores = from.rectangle_for_work(units);
            let end = cores.last();
            assert_eq!((cores.count(), (end.column, end.row)), (count, last), "{units} units");
        }
    }
}
