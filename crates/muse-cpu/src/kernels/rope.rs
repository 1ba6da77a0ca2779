//! The rotary position embedding of one row.

use super::math::sin_cos;
use super::per_isa::per_isa;

/// Pairs whose sines and cosines are computed at a time.
const PAIRS: usize = 64;

/// Rotates the pair `(j, j + n)` of every head of `x` by the angle `position · frequencies[j]`;
/// there are `n` frequencies and heads are `2 n` wide.
pub type Rope = fn(x: &mut [f32], position: f32, frequencies: &[f32]);

per_isa!(Rope = fn(x: &mut [f32], position: f32, frequencies: &[f32]), rope);

#[inline(always)]
fn rope(x: &mut [f32], position: f32, frequencies: &[f32]) {
    let half = frequencies.len();
    for (block, frequencies) in frequencies.chunks(PAIRS).enumerate() {
        let (mut sines, mut cosines) = ([0.0; PAIRS], [0.0; PAIRS]);
        for ((frequency, sin), cos) in frequencies.iter().zip(&mut sines).zip(&mut cosines) {
            (*sin, *cos) = sin_cos(position * frequency);
        }
        let columns = block * PAIRS..block * PAIRS + frequencies.len();
        for head in x.chunks_exact_mut(2 * half) {
            let (first, second) = head.split_at_mut(half);
            let pairs = first[columns.clone()].iter_mut().zip(&mut second[columns.clone()]);
            for ((a, b), (sin, cos)) in pairs.zip(sines.iter().zip(&cosines)) {
                (*a, *b) = (*a * cos - *b * sin, *b * cos + *a * sin);
            }
        }
    }
}
