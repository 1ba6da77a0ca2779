//! Splits a matrix into disjoint parts that the tasks of a [`Pool`] write.

use std::marker::PhantomData;

use crate::pool::Pool;

/// Runs `task(i, chunk i)` on the pool for each chunk of `size` values of `data`, whose length must
/// be a multiple of `size`.
pub(crate) fn chunks<T: Send>(
    pool: &Pool,
    data: &mut [T],
    size: usize,
    task: impl Fn(usize, &mut [T]) + Sync,
) {
    assert!(size > 0 && data.len().is_multiple_of(size), "{} values by {size}", data.len());
    let matrix = Matrix::new(data, size);
    pool.run(matrix.rows, &|row| {
        // SAFETY: the pool runs each index once, and rows do not overlap.
        let chunk = unsafe { matrix.part(row, 0, size) };
        task(row, chunk);
    });
}

/// A matrix of which several tasks write disjoint parts at the same time.
pub(crate) struct Matrix<'a, T> {
    start: *mut T,
    rows: usize,
    cols: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: it is equivalent to the `&mut [T]` it was made from, which is `Send` if `T` is.
unsafe impl<T: Send> Send for Matrix<'_, T> {}
// SAFETY: threads that share it get parts that their callers keep disjoint, each a `&mut [T]` of
// one thread: that requires `T: Send`, not `T: Sync`.
unsafe impl<T: Send> Sync for Matrix<'_, T> {}

impl<'a, T> Matrix<'a, T> {
    pub(crate) fn new(data: &'a mut [T], cols: usize) -> Self {
        let rows = data.len() / cols;
        Self { start: data.as_mut_ptr(), rows, cols, owner: PhantomData }
    }

    /// `len` columns of a row from `col`.
    ///
    /// # Safety
    /// Nothing else accesses the part while it is borrowed.
    pub(crate) unsafe fn part(&self, row: usize, col: usize, len: usize) -> &'a mut [T] {
        assert!(row < self.rows && col + len <= self.cols, "a part of the matrix");
        let start = self.start.wrapping_add(row * self.cols + col);
        // SAFETY: the assertion checked that the part is inside a row of the slice, which is
        // borrowed for `'a`; the caller guarantees that nothing else accesses it.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}
