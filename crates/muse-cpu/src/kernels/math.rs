//! Elementary functions as straight-line `f32` arithmetic, so that loops over them become vector
//! code in whatever instruction set they are compiled for, with the same bits in each.

/// Added and taken away again, it rounds a small `f32` to an integer and leaves it in the low bits.
const ROUND: f32 = 12_582_912.0;
/// The same for `f64`.
const ROUND_F64: f64 = 6_755_399_441_055_744.0;
/// `ln 2` in two parts: the high one has few bits, so its product with an exponent is exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// `eˣ` within 2 units in the last place; 0 below the smallest normal number, and `e⁸⁸` from 88 on.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let (power, rest) = split(x);
    let y = power + power * rest;
    if x < -87.3 { 0.0 } else { y }
}

/// `1 / (1 + e⁻ˣ)` within 3 units in the last place of results above 1e-37.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `tanh x` within 5 units in the last place.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    // e^2x - 1 keeps the digits of small arguments.
    let (power, rest) = split(2.0 * x.clamp(-10.0, 10.0));
    let grown = power * rest + (power - 1.0);
    grown / (grown + 2.0)
}

/// `2ⁿ` and `eʳ - 1` with `x = n ln 2 + r`, `|r| <= ln 2 / 2`.
#[inline(always)]
fn split(x: f32) -> (f32, f32) {
    let x = x.clamp(-87.3, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    // The series to the 7th power leaves 6e-9 at most.
    let mut series = 1.0 / 5040.0;
    for factor in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5] {
        series = series * r + factor;
    }
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    (power, r + r * r * series)
}

/// Sine and cosine within 2e-7 for angles up to a million.
#[inline(always)]
pub(crate) fn sin_cos(angle: f32) -> (f32, f32) {
    let angle = f64::from(angle);
    let shifted = angle * std::f64::consts::FRAC_2_PI + ROUND_F64;
    let quadrant = shifted.to_bits() as u32;
    let r = (angle - (shifted - ROUND_F64) * std::f64::consts::FRAC_PI_2) as f32;
    // |r| <= π/4: the first terms left out are below 2e-9.
    let square = r * r;
    let mut sin = 1.0 / 362_880.0;
    for factor in [-1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0] {
        sin = sin * square + factor;
    }
    let sin = r + r * square * sin;
    let mut cos = -1.0 / 3_628_800.0;
    for factor in [1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5] {
        cos = cos * square + factor;
    }
    let cos = 1.0 + square * cos;
    let (sin, cos) = if quadrant & 1 == 0 { (sin, cos) } else { (cos, sin) };
    let sign = |negative: u32| (negative & 2) << 30;
    (
        f32::from_bits(sin.to_bits() ^ sign(quadrant)),
        f32::from_bits(cos.to_bits() ^ sign(quadrant.wrapping_add(1))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks `low ..= high` in small uneven steps.
    fn walk(low: f32, high: f32, mut check: impl FnMut(f32)) {
        let steps = 200_000;
        for i in 0..=steps {
            check(low + (high - low) * (i as f32 / steps as f32));
        }
    }

    fn check(what: &str, x: f32, got: f32, want: f64, units: f64) {
        let error = (f64::from(got) - want).abs();
        // A unit in the last place of the wanted value.
        let unit = f64::from((want as f32).abs().max(f32::MIN_POSITIVE)) * f64::from(f32::EPSILON);
        assert!(error <= units * unit, "{what}({x}) = {got}, should be {want}");
    }

    #[test]
    fn exp_is_close_everywhere() {
        walk(-87.2, 88.0, |x| check("exp", x, exp(x), f64::from(x).exp(), 2.0));
        walk(-1e-3, 1e-3, |x| check("exp", x, exp(x), f64::from(x).exp(), 1.0));
        assert_eq!([exp(0.0), exp(f32::NEG_INFINITY), exp(-100.0)], [1.0, 0.0, 0.0]);
        assert!(exp(f32::NAN).is_nan(), "errors are not hidden");
        assert!(exp(f32::INFINITY) > 1e38);
    }

    #[test]
    fn sigmoid_is_close_everywhere() {
        let wanted = |x: f32| 1.0 / (1.0 + (-f64::from(x)).exp());
        walk(-80.0, 80.0, |x| check("sigmoid", x, sigmoid(x), wanted(x), 3.0));
        assert_eq!(sigmoid(f32::INFINITY), 1.0);
        assert!(sigmoid(-1e30) < 1e-37);
    }

    #[test]
    fn tanh_is_close_everywhere() {
        walk(-20.0, 20.0, |x| check("tanh", x, tanh(x), f64::from(x).tanh(), 5.0));
        walk(-1e-3, 1e-3, |x| check("tanh", x, tanh(x), f64::from(x).tanh(), 5.0));
        assert_eq!([tanh(1e30), tanh(-1e30), tanh(0.0)], [1.0, -1.0, 0.0]);
    }

    #[test]
    fn sin_cos_is_close_for_far_positions() {
        for high in [1.0, 100.0, 131_072.0, 1e6] {
            walk(-high, high, |x| {
                let (sin, cos) = sin_cos(x);
                let (want_sin, want_cos) = f64::from(x).sin_cos();
                assert!((f64::from(sin) - want_sin).abs() < 2e-7, "sin {x} = {sin}");
                assert!((f64::from(cos) - want_cos).abs() < 2e-7, "cos {x} = {cos}");
            });
        }
    }
}
