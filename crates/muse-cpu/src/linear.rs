//! Matrix products, cut into bands of columns and blocks of rows.

use crate::buf::{Buf, Weight};
use crate::kernels::Kernels;
use crate::pool::Pool;
use crate::split::Matrix;

/// Columns of a task: enough work to be worth taking, few enough to share evenly.
const BAND: usize = 32;
/// Rows of a task; their inputs should stay in the second-level cache.
const BLOCK: usize = 32;
/// Products from which on the work is shared.
const SHARED_PRODUCTS: usize = 1 << 19;
/// Weights cut into tasks together.
const TOGETHER: usize = 4;

/// `y = x Wᵀ` for each weight.
pub(crate) fn linear(
    pool: &Pool,
    kernels: &Kernels,
    x: &Buf,
    rows: usize,
    into: &mut [(&Weight, &mut Buf)],
) {
    for (weight, y) in &*into {
        let (n, k) = weight.shape();
        assert_eq!((x.cols(), y.cols()), (k, n), "widths of input and output of {weight:?}");
    }
    let products: usize = into.iter().map(|(weight, _)| weight.shape().0 * rows * x.cols()).sum();
    if products < SHARED_PRODUCTS || pool.threads() == 1 && rows <= BLOCK / 8 {
        for (weight, y) in into {
            let (n, k) = weight.shape();
            let kernel = kernels.linear(weight.layout());
            kernel(x.rows(0..rows), weight.rows(0..n), k, y.rows_mut(0..rows));
        }
    } else {
        for into in into.chunks_mut(TOGETHER) {
            in_tasks(pool, kernels, x, rows, into);
        }
    }
}

/// All bands of at most [`TOGETHER`] weights in one run of the pool.
fn in_tasks(
    pool: &Pool,
    kernels: &Kernels,
    x: &Buf,
    rows: usize,
    into: &mut [(&Weight, &mut Buf)],
) {
    let blocks = rows.div_ceil(BLOCK);
    let mut parts: [Option<(&Weight, Matrix<'_, f32>)>; TOGETHER] = [const { None }; TOGETHER];
    let mut tasks = 0;
    for (part, (weight, y)) in parts.iter_mut().zip(into) {
        let (n, _) = weight.shape();
        *part = Some((weight, Matrix::new(y.rows_mut(0..rows), n)));
        tasks += n.div_ceil(BAND) * blocks;
    }
    pool.run(tasks, &|mut task| {
        for (weight, y) in parts.iter().flatten() {
            let (n, k) = weight.shape();
            let own = n.div_ceil(BAND) * blocks;
            if task >= own {
                task -= own;
                continue;
            }
            // Blocks of one band follow each other: its weights stay in the cache.
            let (col, row) = (task / blocks * BAND, task % blocks * BLOCK);
            let (cols, rows) = (BAND.min(n - col), BLOCK.min(rows - row));
            let mut tile = [0.0; BAND * BLOCK];
            let tile = &mut tile[..rows * cols];
            let kernel = kernels.linear(weight.layout());
            kernel(x.rows(row..row + rows), weight.rows(col..col + cols), k, tile);
            for (r, values) in tile.chunks_exact(cols).enumerate() {
                // SAFETY: no other task has these columns of these rows.
                let y = unsafe { y.part(row + r, col, cols) };
                y.copy_from_slice(values);
            }
            return;
        }
        unreachable!("a task of these weights");
    });
}
