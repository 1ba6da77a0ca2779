//! Fits 256 values as 8 groups of 32 with six-bit scales and minimums under two half-precision
//! numbers: what Q4_K and Q5_K share.

use half::f16;

use super::fit::{Line, inverse, nearest};

/// Values of a group.
const GROUP: usize = 32;
/// The largest scale or minimum of a group.
const MOST: f32 = 63.0;
/// Rounds of fitting the two half-precision numbers to the groups and the groups to them.
const ROUNDS: usize = 2;

/// A fitted block.
#[derive(Clone, Copy, Default)]
pub(super) struct Groups {
    pub(super) d: f16,
    pub(super) dmin: f16,
    pub(super) scales: [u8; 8],
    pub(super) minimums: [u8; 8],
}

impl Groups {
    /// Fits numbers from 0 to `highest`.
    pub(super) fn fit(values: &[f32; 256], weights: &[f32; 256], highest: f32) -> Self {
        let groups = || values.as_chunks().0.iter().zip(weights.as_chunks().0);
        let mut lines = [Line::default(); 8];
        for (line, (x, w)) in lines.iter_mut().zip(groups()) {
            *line = Line::fit::<GROUP>(x, w, highest, false);
        }
        let scale = lines.iter().fold(0.0_f32, |most, line| most.max(line.scale));
        let minimum = lines.iter().fold(0.0_f32, |most, line| most.max(-line.offset));
        let (d, dmin) = (f16::from_f32(scale / MOST), f16::from_f32(minimum / MOST));
        let (mut error, mut best) = Self::choose(d, dmin, &lines, groups(), highest);
        for _ in 0..ROUNDS {
            let (d, dmin) = best.solve(groups(), highest);
            let lines = std::array::from_fn(|i| best.line(i));
            let (found, next) = Self::choose(d, dmin, &lines, groups(), highest);
            if found >= error {
                break;
            }
            (error, best) = (found, next);
        }
        best
    }

    /// The six-bit scales and minimums nearest to the lines' own that leave the least error, and
    /// that error.
    fn choose<'a>(
        d: f16,
        dmin: f16,
        lines: &[Line; 8],
        groups: impl Iterator<Item = (&'a [f32; GROUP], &'a [f32; GROUP])>,
        highest: f32,
    ) -> (f32, Self) {
        let mut chosen = Self { d, dmin, ..Self::default() };
        let (d, dmin) = (d.to_f32(), dmin.to_f32());
        let mut sum = 0.0;
        for (i, (x, w)) in groups.enumerate() {
            let sixth_bits = |x: f32| nearest(x, 0.0, MOST);
            let centre = sixth_bits(lines[i].scale * inverse(d));
            let mut least = f32::INFINITY;
            for scale in [centre, centre - 1.0, centre + 1.0] {
                if !(0.0..=MOST).contains(&scale) {
                    continue;
                }
                let mut minimum = sixth_bits(-lines[i].offset * inverse(dmin));
                // The numbers under this minimum tell which minimum they want.
                for _ in 0..2 {
                    let line = Line { scale: d * scale, offset: -dmin * minimum };
                    let (error, rest) = line.error(x, w, highest);
                    if error < least {
                        least = error;
                        (chosen.scales[i], chosen.minimums[i]) = (scale as u8, minimum as u8);
                    }
                    minimum = sixth_bits(-rest * inverse(dmin));
                }
            }
            sum += least;
        }
        (sum, chosen)
    }

    /// The two numbers that fit the groups' numbers best.
    fn solve<'a>(
        &self,
        groups: impl Iterator<Item = (&'a [f32; GROUP], &'a [f32; GROUP])>,
        highest: f32,
    ) -> (f16, f16) {
        // Unknown d and dmin of value = d · a − dmin · b.
        let (mut aa, mut ab, mut bb, mut xa, mut xb) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0, 0.0);
        for (i, (x, w)) in groups.enumerate() {
            let line = self.line(i);
            let inverse = inverse(line.scale);
            let b = f64::from(self.minimums[i]);
            for (&x, &w) in x.iter().zip(w) {
                let number = line.number(x, inverse, highest) * f32::from(self.scales[i]);
                let (x, w, a) = (f64::from(x), f64::from(w), f64::from(number));
                aa += w * a * a;
                ab += w * a * b;
                bb += w * b * b;
                xa += w * x * a;
                xb += w * x * b;
            }
        }
        let determinant = aa * bb - ab * ab;
        let (d, dmin) = if determinant > 1e-9 * aa * bb {
            ((xa * bb - xb * ab) / determinant, (xa * ab - xb * aa) / determinant)
        } else if aa > 0.0 {
            (xa / aa, 0.0)
        } else {
            return (self.d, self.dmin);
        };
        if d < 0.0 || dmin < 0.0 {
            return (self.d, self.dmin);
        }
        (f16::from_f64(d), f16::from_f64(dmin))
    }

    fn line(&self, group: usize) -> Line {
        Line {
            scale: self.d.to_f32() * f32::from(self.scales[group]),
            offset: -self.dmin.to_f32() * f32::from(self.minimums[group]),
        }
    }

    /// The numbers of the values.
    pub(super) fn numbers(&self, values: &[f32; 256], highest: f32) -> [u8; 256] {
        let mut numbers = [0; 256];
        for (i, (numbers, values)) in
            numbers.chunks_exact_mut(GROUP).zip(values.chunks_exact(GROUP)).enumerate()
        {
            let line = self.line(i);
            let inverse = inverse(line.scale);
            for (number, &value) in numbers.iter_mut().zip(values) {
                *number = line.number(value, inverse, highest) as u8;
            }
        }
        numbers
    }

    /// Writes `d`, `dmin` and the packed scales and minimums, as [`super::q4_k::scale_minimum`]
    /// reads them.
    pub(super) fn pack(&self, out: &mut [u8]) {
        out[..2].copy_from_slice(&self.d.to_le_bytes());
        out[2..4].copy_from_slice(&self.dmin.to_le_bytes());
        let bytes = &mut out[4..16];
        for i in 0..4 {
            let (scale, minimum) = (self.scales[i + 4], self.minimums[i + 4]);
            bytes[i] = self.scales[i] | scale >> 4 << 6;
            bytes[i + 4] = self.minimums[i] | minimum >> 4 << 6;
            bytes[i + 8] = scale & 15 | minimum << 4;
        }
    }
}
