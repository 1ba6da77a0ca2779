//! Rotates the heads of one row by its position.

use super::math::sin_cos;
use super::plain::per_isa;

/// Pairs whose sines are computed at a time.
const PAIRS: usize = 64;

/// Turns pair `(j, j + n)` of every head of `x`, heads of width `2 n`, by `position ·
/// frequencies[j]`, `n` frequencies.
pub type Rotate = fn(x: &mut [f32], position: f32, frequencies: &[f32]);

per_isa!(Rotate = fn(x: &mut [f32], position: f32, frequencies: &[f32]), rotate);

#[inline(always)]
fn rotate(x: &mut [f32], position: f32, frequencies: &[f32]) {
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
