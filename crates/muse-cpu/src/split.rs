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
        // SAFETY: the pool runs each index once, and no other row reaches into this one.
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

// SAFETY: it stands for the `&mut [T]` it was made of, which is `Send` where `T` is.
unsafe impl<T: Send> Send for Matrix<'_, T> {}
// SAFETY: all it gives to other threads are parts that their callers keep apart, each a `&mut [T]`
// that only one thread has: that asks for `T: Send`, not for `T: Sync`.
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
        // SAFETY: `new` counted whole rows of the slice and the assertion keeps the part inside one;
        // the slice stays borrowed for `'a`, and the caller keeps the part unshared.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}
