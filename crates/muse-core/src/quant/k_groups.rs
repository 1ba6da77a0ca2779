//! Fits a quant block of 256 values as 8 groups of 32 with six-bit scales and minimums, which count
//! in multiples of the half-precision `d` and `dmin`. Q4_K and Q5_K share it.

use half::f16;

use super::least_squares::{Affine, inverse, nearest};

/// Values of a group.
const GROUP: usize = 32;
/// The largest six-bit scale or minimum of a group.
const MAX_SCALE: f32 = 63.0;
/// Rounds of fitting `d` and `dmin` to the groups and the groups to them.
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
    /// Fits all groups with quants from 0 to `highest`.
    pub(super) fn fit(values: &[f32; 256], weights: &[f32; 256], highest: f32) -> Self {
        let groups = || values.as_chunks().0.iter().zip(weights.as_chunks().0);
        let mut fits = [Affine::default(); 8];
        for (fit, (x, w)) in fits.iter_mut().zip(groups()) {
            *fit = Affine::fit::<GROUP>(x, w, highest, false);
        }
        let scale = fits.iter().fold(0.0_f32, |largest, fit| largest.max(fit.scale));
        let minimum = fits.iter().fold(0.0_f32, |largest, fit| largest.max(-fit.offset));
        let (d, dmin) = (f16::from_f32(scale / MAX_SCALE), f16::from_f32(minimum / MAX_SCALE));
        let (mut error, mut best) = Self::quantize(d, dmin, &fits, groups(), highest);
        for _ in 0..ROUNDS {
            let (d, dmin) = best.solve(groups(), highest);
            let fits = std::array::from_fn(|i| best.fit_of(i));
            let (found, next) = Self::quantize(d, dmin, &fits, groups(), highest);
            if found >= error {
                break;
            }
            (error, best) = (found, next);
        }
        best
    }

    /// Rounds the fits to six-bit scales and minimums, to the neighbours with the least error.
    /// Returns that error and them.
    fn quantize<'a>(
        d: f16,
        dmin: f16,
        fits: &[Affine; 8],
        groups: impl Iterator<Item = (&'a [f32; GROUP], &'a [f32; GROUP])>,
        highest: f32,
    ) -> (f32, Self) {
        let mut best = Self { d, dmin, ..Self::default() };
        let (d, dmin) = (d.to_f32(), dmin.to_f32());
        let mut sum = 0.0;
        for (i, (x, w)) in groups.enumerate() {
            let six_bits = |x: f32| nearest(x, 0.0, MAX_SCALE);
            let nearest_scale = six_bits(fits[i].scale * inverse(d));
            let mut least_error = f32::INFINITY;
            for scale in [nearest_scale, nearest_scale - 1.0, nearest_scale + 1.0] {
                if !(0.0..=MAX_SCALE).contains(&scale) {
                    continue;
                }
                let mut minimum = six_bits(-fits[i].offset * inverse(dmin));
                // The mean that is left under this minimum is a better one.
                for _ in 0..2 {
                    let fit = Affine { scale: d * scale, offset: -dmin * minimum };
                    let (error, rest) = fit.error(x, w, highest);
                    if error < least_error {
                        least_error = error;
                        (best.scales[i], best.minimums[i]) = (scale as u8, minimum as u8);
                    }
                    minimum = six_bits(-rest * inverse(dmin));
                }
            }
            sum += least_error;
        }
        (sum, best)
    }

    /// The `d` and `dmin` that fit the quants of all groups best.
    fn solve<'a>(
        &self,
        groups: impl Iterator<Item = (&'a [f32; GROUP], &'a [f32; GROUP])>,
        highest: f32,
    ) -> (f16, f16) {
        // The unknowns are `d` and `dmin` of `value = d · a − dmin · b`.
        let (mut aa, mut ab, mut bb, mut xa, mut xb) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0, 0.0);
        for (i, (x, w)) in groups.enumerate() {
            let fit = self.fit_of(i);
            let inverse = inverse(fit.scale);
            let b = f64::from(self.minimums[i]);
            for (&x, &w) in x.iter().zip(w) {
                let a = fit.quant(x, inverse, highest) * f32::from(self.scales[i]);
                let (x, w, a) = (f64::from(x), f64::from(w), f64::from(a));
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

    /// Scale and offset of a group as they decode.
    fn fit_of(&self, group: usize) -> Affine {
        Affine {
            scale: self.d.to_f32() * f32::from(self.scales[group]),
            offset: -self.dmin.to_f32() * f32::from(self.minimums[group]),
        }
    }

    /// The quants of the values.
    pub(super) fn quants(&self, values: &[f32; 256], highest: f32) -> [u8; 256] {
        let mut quants = [0; 256];
        for (i, (quants, values)) in
            quants.chunks_exact_mut(GROUP).zip(values.chunks_exact(GROUP)).enumerate()
        {
            let fit = self.fit_of(i);
            let inverse = inverse(fit.scale);
            for (quant, &value) in quants.iter_mut().zip(values) {
                *quant = fit.quant(value, inverse, highest) as u8;
            }
        }
        quants
    }

    /// Writes `d`, `dmin` and the packed scales and minimums, the first 16 bytes of a quant block.
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
