//! Q6_K: 256 six-bit numbers in 16 groups with signed byte scales;
//! `value = d · scale · (number − 32)`.

use half::f16;

use super::fit::{Signed, inverse, nearest};
use super::half_at;

/// Values of a block.
pub const VALUES: usize = 256;
/// Bytes of a block: 128 of low nibbles, 64 of high bits, 16 scales, `d`.
pub const BYTES: usize = 210;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let d = half_at(block, 208);
        for (j, value) in values.iter_mut().enumerate() {
            let scale = d * f32::from(scale(block, j / 16));
            *value = scale * f32::from(number(block, j) as i8 - 32);
        }
    }
}

/// Number `j` of a block, 32 added.
pub fn number(block: &[u8], j: usize) -> u8 {
    // Halves of 128: four runs of 32, the low nibbles of runs 0 and 1 before the high ones of
    // runs 2 and 3, the four runs' high bits in one byte.
    let (half, run, at) = (j / 128, j / 32 % 4, j % 32);
    let low = block[half * 64 + run % 2 * 32 + at] >> (4 * (run / 2)) & 15;
    let high = block[128 + half * 32 + at] >> (2 * run) & 3;
    low | high << 4
}

/// Scale `i` of 16.
pub fn scale(block: &[u8], i: usize) -> i8 {
    block[192 + i] as i8
}

const RANGE: Signed = Signed { lowest: -32.0, highest: 31.0 };
/// Values of a group.
const GROUP: usize = 16;
/// Rounds of fitting `d` to the groups' scales and the scales to it.
const ROUNDS: usize = 2;

/// Encodes one block.
pub(super) fn encode(values: &[f32; VALUES], weights: &[f32; VALUES], block: &mut [u8; BYTES]) {
    let groups = || values.as_chunks::<GROUP>().0.iter().zip(weights.as_chunks::<GROUP>().0);
    let mut fitted = [0.0; GROUP];
    for (scale, (x, w)) in fitted.iter_mut().zip(groups()) {
        *scale = RANGE.fit(x, w);
    }
    // A byte reaches one farther below 0.
    let largest =
        fitted.iter().copied().fold(0.0, |a: f32, b| if b.abs() > a.abs() { b } else { a });
    let mut best = Scales::choose(f16::from_f32(largest / -128.0), &fitted, groups());
    for _ in 0..ROUNDS {
        let d = best.solve(groups());
        let next = Scales::choose(d, &best.scales.map(|scale| best.d.to_f32() * scale), groups());
        if next.error >= best.error {
            break;
        }
        best = next;
    }
    best.write(values, block);
}

/// The scales of a block.
struct Scales {
    d: f16,
    scales: [f32; 16],
    error: f32,
}

impl Scales {
    /// The whole numbers nearest to the fitted scales that leave the least error.
    fn choose<'a>(
        d: f16,
        fitted: &[f32; 16],
        groups: impl Iterator<Item = (&'a [f32; GROUP], &'a [f32; GROUP])>,
    ) -> Self {
        let mut chosen = Self { d, scales: [0.0; 16], error: 0.0 };
        let d = d.to_f32();
        for (i, (x, w)) in groups.enumerate() {
            let byte = |scale: f32| nearest(scale, -128.0, 127.0);
            let centre = byte(fitted[i] * inverse(d));
            let mut least = f32::INFINITY;
            for scale in [centre, byte(centre - 1.0), byte(centre + 1.0)] {
                let error = RANGE.error(x, w, d * scale);
                if error < least {
                    (least, chosen.scales[i]) = (error, scale);
                }
            }
            chosen.error += least;
        }
        chosen
    }

    /// The `d` that fits the groups' numbers best.
    fn solve<'a>(&self, groups: impl Iterator<Item = (&'a [f32; GROUP], &'a [f32; GROUP])>) -> f16 {
        let (mut products, mut squares) = (0.0_f64, 0.0_f64);
        for (i, (x, w)) in groups.enumerate() {
            let inverse = inverse(self.d.to_f32() * self.scales[i]);
            for (&x, &w) in x.iter().zip(w) {
                let number = f64::from(self.scales[i] * RANGE.number(x, inverse));
                products += f64::from(w) * f64::from(x) * number;
                squares += f64::from(w) * number * number;
            }
        }
        if squares > 0.0 { f16::from_f64(products / squares) } else { self.d }
    }

    fn write(&self, values: &[f32; VALUES], block: &mut [u8; BYTES]) {
        block[208..].copy_from_slice(&self.d.to_le_bytes());
        for (i, values) in values.chunks_exact(GROUP).enumerate() {
            block[192 + i] = self.scales[i] as i8 as u8;
            let inverse = inverse(self.d.to_f32() * self.scales[i]);
            for (j, &value) in (GROUP * i..).zip(values) {
                let number = (RANGE.number(value, inverse) + 32.0) as u8;
                let (half, run, at) = (j / 128, j / 32 % 4, j % 32);
                block[half * 64 + run % 2 * 32 + at] |= (number & 15) << (4 * (run / 2));
                block[128 + half * 32 + at] |= number >> 4 << (2 * run);
            }
        }
    }
}
