//! Q6_K: 256 six-bit quants in 16 groups with signed byte scales;
//! `value = d · scale · (quant − 32)`.

use half::f16;

use super::bits::half_at;
use super::least_squares::{IntRange, inverse, nearest};

/// Values of a quant block.
pub const VALUES: usize = 256;
/// Bytes of a quant block: 128 of low nibbles, 64 of high bits, 16 scales, `d`.
pub const BYTES: usize = 210;

/// Decodes whole quant blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let d = half_at(block, 208);
        for (j, value) in values.iter_mut().enumerate() {
            let scale = d * f32::from(scale(block, j / 16));
            *value = scale * f32::from(quant(block, j) as i8 - 32);
        }
    }
}

/// Quant `j` of a block, plus 32.
pub fn quant(block: &[u8], j: usize) -> u8 {
    // Each half of 128 has four runs of 32 quants. 64 bytes hold runs 0 and 1 in their low nibbles
    // and runs 2 and 3 in their high ones; one byte holds the high bits of the same quant of four
    // runs.
    let (half, run, at) = (j / 128, j / 32 % 4, j % 32);
    let low = block[half * 64 + run % 2 * 32 + at] >> (4 * (run / 2)) & 15;
    let high = block[128 + half * 32 + at] >> (2 * run) & 3;
    low | high << 4
}

/// Scale `i` of 16.
pub fn scale(block: &[u8], i: usize) -> i8 {
    block[192 + i] as i8
}

/// Quants before 32 is added.
const RANGE: IntRange = IntRange { lowest: -32.0, highest: 31.0 };
/// Values of a group.
const GROUP: usize = 16;
/// Rounds of fitting `d` to the scales of the groups and the scales to `d`.
const ROUNDS: usize = 2;

/// Encodes one quant block.
pub(super) fn encode(values: &[f32; VALUES], weights: &[f32; VALUES], block: &mut [u8; BYTES]) {
    let groups = || values.as_chunks::<GROUP>().0.iter().zip(weights.as_chunks::<GROUP>().0);
    let mut fitted = [0.0; GROUP];
    for (scale, (x, w)) in fitted.iter_mut().zip(groups()) {
        *scale = RANGE.fit(x, w);
    }
    // A signed byte reaches -128, but only 127.
    let largest =
        fitted.iter().copied().fold(0.0, |a: f32, b| if b.abs() > a.abs() { b } else { a });
    let mut best = Scales::quantize(f16::from_f32(largest / -128.0), &fitted, groups());
    for _ in 0..ROUNDS {
        let d = best.solve(groups());
        let next = Scales::quantize(d, &best.scales.map(|scale| best.d.to_f32() * scale), groups());
        if next.error >= best.error {
            break;
        }
        best = next;
    }
    best.write(values, block);
}

/// Quantized scales of a quant block.
struct Scales {
    d: f16,
    scales: [f32; 16],
    error: f32,
}

impl Scales {
    /// Rounds the fitted scales to signed bytes, to the neighbours with the least error.
    fn quantize<'a>(
        d: f16,
        fitted: &[f32; 16],
        groups: impl Iterator<Item = (&'a [f32; GROUP], &'a [f32; GROUP])>,
    ) -> Self {
        let mut quantized = Self { d, scales: [0.0; 16], error: 0.0 };
        let d = d.to_f32();
        for (i, (x, w)) in groups.enumerate() {
            let byte = |scale: f32| nearest(scale, -128.0, 127.0);
            let nearest_byte = byte(fitted[i] * inverse(d));
            let mut least_error = f32::INFINITY;
            for scale in [nearest_byte, byte(nearest_byte - 1.0), byte(nearest_byte + 1.0)] {
                let error = RANGE.error(x, w, d * scale);
                if error < least_error {
                    (least_error, quantized.scales[i]) = (error, scale);
                }
            }
            quantized.error += least_error;
        }
        quantized
    }

    /// The `d` that fits the quants of all groups best.
    fn solve<'a>(&self, groups: impl Iterator<Item = (&'a [f32; GROUP], &'a [f32; GROUP])>) -> f16 {
        let (mut products, mut squares) = (0.0_f64, 0.0_f64);
        for (i, (x, w)) in groups.enumerate() {
            let inverse = inverse(self.d.to_f32() * self.scales[i]);
            for (&x, &w) in x.iter().zip(w) {
                let quant = f64::from(self.scales[i] * RANGE.quant(x, inverse));
                products += f64::from(w) * f64::from(x) * quant;
                squares += f64::from(w) * quant * quant;
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
                let quant = (RANGE.quant(value, inverse) + 32.0) as u8;
                let (half, run, at) = (j / 128, j / 32 % 4, j % 32);
                block[half * 64 + run % 2 * 32 + at] |= (quant & 15) << (4 * (run / 2));
                block[128 + half * 32 + at] |= quant >> 4 << (2 * run);
            }
        }
    }
}
