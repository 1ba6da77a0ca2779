//! The order of patches inside the tower: window after window, so that the patches of a window are
//! consecutive.

use std::ops::Range;

use muse_core::contract::RangeQueries;

/// A grid of patches in window order. Windows are tiled from the top left and taken row by row, as
/// are the patches of a window; those at the right and at the bottom may be smaller.
#[derive(Clone, Debug)]
pub(crate) struct WindowOrder {
    grid_w: usize,
    /// Raster index of each patch, in window order.
    patches: Vec<u32>,
    /// Index in window order of each patch, in raster order.
    places: Vec<u32>,
    /// The windows, as ranges of indices in window order.
    windows: Vec<Range<u32>>,
}

impl WindowOrder {
    /// The order of a grid for windows of `window` patches `(down, across)`.
    pub(crate) fn new(grid_h: usize, grid_w: usize, window: (usize, usize)) -> Self {
        let mut patches = Vec::with_capacity(grid_h * grid_w);
        let mut windows = Vec::new();
        for top in (0..grid_h).step_by(window.0) {
            for left in (0..grid_w).step_by(window.1) {
                let first = patches.len() as u32;
                for y in top..grid_h.min(top + window.0) {
                    let row = y * grid_w;
                    patches.extend((left..grid_w.min(left + window.1)).map(|x| (row + x) as u32));
                }
                windows.push(first..patches.len() as u32);
            }
        }
        let mut places = vec![0; patches.len()];
        patches.iter().enumerate().for_each(|(i, &patch)| places[patch as usize] = i as u32);
        Self { grid_w, patches, places, windows }
    }

    /// Number of patches.
    pub(crate) fn len(&self) -> usize {
        self.patches.len()
    }

    /// Raster indices of the patches of a range in window order.
    pub(crate) fn patches(&self, range: Range<usize>) -> &[u32] {
        &self.patches[range]
    }

    /// Positions of the patches of a range, `[across, down]`, counted from 1 as the reference does.
    pub(crate) fn positions(&self, range: Range<usize>) -> impl Iterator<Item = [u32; 2]> {
        let width = self.grid_w as u32;
        self.patches[range].iter().map(move |patch| [patch % width + 1, patch / width + 1])
    }

    /// What the patches of a range attend to: the whole picture, or each its window.
    pub(crate) fn attention(&self, range: Range<usize>, full: bool) -> Vec<RangeQueries> {
        if full {
            return vec![RangeQueries { rows: range.len(), keys: 0..self.len() as u32 }];
        }
        let (start, end) = (range.start as u32, range.end as u32);
        let parts = self.windows.iter().filter_map(|window| {
            let rows = end.min(window.end).saturating_sub(start.max(window.start)) as usize;
            (rows > 0).then(|| RangeQueries { rows, keys: window.clone() })
        });
        parts.collect()
    }

    /// The rows of the patches that a range of embedding rows is made of: for each row of the
    /// picture in raster order, its `merge · merge` patches in raster order.
    pub(crate) fn merged(&self, range: Range<usize>, merge: usize) -> Vec<u32> {
        let across = self.grid_w / merge;
        let corner = |row: usize| (row / across * merge, row % across * merge);
        let square = |row: usize| {
            let (top, left) = corner(row);
            (0..merge * merge).map(move |i| (top + i / merge, left + i % merge))
        };
        range.flat_map(square).map(|(y, x)| self.places[y * self.grid_w + x]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_of_windows_is_tiled_from_the_top_left() {
        // Windows of 2 x 2 over 3 x 5 patches: the last column and the last row are partial.
        let order = WindowOrder::new(3, 5, (2, 2));
        let expect = [0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14];
        assert_eq!(order.patches(0..15), expect);
        assert_eq!(order.windows, [0..4, 4..8, 8..10, 10..12, 12..14, 14..15]);
        assert_eq!(order.positions(6..9).collect::<Vec<_>>(), [[3, 2], [4, 2], [5, 1]]);
    }

    #[test]
    fn a_range_attends_to_the_windows_it_crosses() {
        let order = WindowOrder::new(3, 5, (2, 2));
        let part = |rows, keys| RangeQueries { rows, keys };
        assert_eq!(order.attention(3..9, false), [part(1, 0..4), part(4, 4..8), part(1, 8..10)]);
        assert_eq!(order.attention(5..6, false), [part(1, 4..8)]);
        assert_eq!(order.attention(3..9, true), [part(6, 0..15)]);
    }

    #[test]
    fn embedding_rows_are_squares_of_patches_in_raster_order() {
        let order = WindowOrder::new(2, 6, (2, 4));
        // The first window holds columns 0 to 3 in rows of 4, the second columns 4 and 5.
        assert_eq!(order.merged(0..3, 2), [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 10, 11]);
        assert_eq!(order.merged(2..3, 2), [8, 9, 10, 11]);
    }
}
