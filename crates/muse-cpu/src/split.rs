//! Hands disjoint parts of a matrix to the tasks of a [`Pool`].

use std::marker::PhantomData;

use crate::pool::Pool;

/// Runs `task(i, chunk i)` for the chunks of `size` values that `data` consists of.
pub(crate) fn chunks<T: Send>(
    pool: &Pool,
    data: &mut [T],
    size: usize,
    task: impl Fn(usize, &mut [T]) + Sync,
) {
    assert!(size > 0 && data.len().is_multiple_of(size), "{} values by {size}", data.len());
    let matrix = Matrix::new(data, size);
    pool.run(matrix.rows, &|row| {
        // SAFETY: every task has its own row.
        let chunk = unsafe { matrix.part(row, 0, size) };
        task(row, chunk);
    });
}

/// A matrix whose parts are written by several tasks at once.
pub(crate) struct Matrix<'a, T> {
    start: *mut T,
    rows: usize,
    cols: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: it is used through `part` alone, whose callers keep parts apart.
unsafe impl<T: Send> Send for Matrix<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Matrix<'_, T> {}

impl<'a, T> Matrix<'a, T> {
    pub(crate) fn new(data: &'a mut [T], cols: usize) -> Self {
        let rows = data.len() / cols;
        Self { start: data.as_mut_ptr(), rows, cols, owner: PhantomData }
    }

    /// `len` columns from `col` on of a row.
    ///
    /// # Safety
    /// While the part lives nobody else uses any of it.
    pub(crate) unsafe fn part(&self, row: usize, col: usize, len: usize) -> &'a mut [T] {
        assert!(row < self.rows && col + len <= self.cols, "a part inside the matrix");
        let start = self.start.wrapping_add(row * self.cols + col);
        // SAFETY: the assertion keeps it inside the borrowed slice; the caller keeps it unshared.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}
