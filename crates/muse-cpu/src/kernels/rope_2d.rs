//! The rotary embedding of a row by a position in two dimensions.

use super::math::sin_cos;
use super::per_isa::per_isa;

/// Pairs whose sines and cosines are computed at a time.
const PAIRS: usize = 32;

/// Rotates every head of `x` by a position `[across, down]`. Heads are `4 n` wide for `n`
/// frequencies: of their pairs `(j, j + 2 n)`, the first `n` turn by `across · frequencies[j]` and
/// the others by `down · frequencies[j - n]`.
pub type Rope2d = fn(x: &mut [f32], position: [f32; 2], frequencies: &[f32]);

per_isa!(Rope2d = fn(x: &mut [f32], position: [f32; 2], frequencies: &[f32]), rope_2d);

#[inline(always)]
fn rope_2d(x: &mut [f32], position: [f32; 2], frequencies: &[f32]) {
    let n = frequencies.len();
    for (axis, position) in position.into_iter().enumerate() {
        for (block, frequencies) in frequencies.chunks(PAIRS).enumerate() {
            let (mut sines, mut cosines) = ([0.0; PAIRS], [0.0; PAIRS]);
            for ((frequency, sin), cos) in frequencies.iter().zip(&mut sines).zip(&mut cosines) {
                (*sin, *cos) = sin_cos(position * frequency);
            }
            let first_col = axis * n + block * PAIRS;
            let columns = first_col..first_col + frequencies.len();
            for head in x.chunks_exact_mut(4 * n) {
                let (first, second) = head.split_at_mut(2 * n);
                let pairs = first[columns.clone()].iter_mut().zip(&mut second[columns.clone()]);
                for ((a, b), (sin, cos)) in pairs.zip(sines.iter().zip(&cosines)) {
                    (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
                }
            }
        }
    }
}
