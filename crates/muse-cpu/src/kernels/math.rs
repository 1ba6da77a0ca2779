//! Elementary functions as straight-line arithmetic, so that loops over them vectorize in every
//! instruction set, with the same bits in each.

/// Adding it to an `f32` below 2²² in magnitude rounds that to an integer, which is then in the low
/// bits of the sum; subtracting it again gives the integer as a float.
const ROUND: f32 = 12_582_912.0;
/// The same for an `f64` below 2⁵¹ in magnitude.
const ROUND_F64: f64 = 6_755_399_441_055_744.0;
/// `ln 2` in two parts. The high one has few bits, so its product with an exponent is exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// `eˣ` within 2 units in the last place; 0 where the result would be subnormal, `e⁸⁸` for `x >=
/// 88`.
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
    // `e²ˣ - 1` is precise for small arguments, where `e²ˣ` is not.
    let (power, rest) = split(2.0 * x.clamp(-10.0, 10.0));
    let grown = power * rest + (power - 1.0);
    grown / (grown + 2.0)
}

/// The normal distribution function Φ(x), within 1.2e-7 and, where it is above 1e-30, within a
/// relative error of 2e-5; `x · Φ(x)` is within 4 units in the last place of max(|x|, 1).
#[inline(always)]
pub(crate) fn normal_cdf(x: f32) -> f32 {
    // Φ(-y) = exp(-y²/2) · t · p(t) for y >= 0, with t = 1 / (1 + 0.27 y) and p the polynomial
    // through the quotient at the Chebyshev nodes of 0 <= y <= 13.2, within 3e-8.
    // Behind 14, `exp` gives 0.
    let y = x.abs().min(14.0);
    let t = 1.0 / (1.0 + 0.27 * y);
    let mut series = NORMAL_TAIL[0];
    for factor in &NORMAL_TAIL[1..] {
        series = series * t + factor;
    }
    let tail = exp(-0.5 * y * y) * t * series;
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// Coefficients of the polynomial of [`normal_cdf`], the highest power first.
const NORMAL_TAIL: [f32; 9] = [
    0.028_906_98,
    -0.126_257_85,
    0.169_385_96,
    -0.068_829_2,
    0.107_608_65,
    0.072_126_21,
    0.101_793_6,
    0.107_545_16,
    0.107_720_51,
];

/// `2ⁿ` and `eʳ - 1` with `x = n ln 2 + r`, `|r| <= ln 2 / 2`.
#[inline(always)]
fn split(x: f32) -> (f32, f32) {
    let x = x.clamp(-87.3, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    // The error of the series up to the 7th power is at most 6e-9.
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
    // For |r| <= π/4 the first omitted terms are below 2e-9.
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

    /// Checks many points from `low` to `high`.
    fn sweep(low: f32, high: f32, mut check: impl FnMut(f32)) {
        let steps = 200_000;
        for i in 0..=steps {
            check(low + (high - low) * (i as f32 / steps as f32));
        }
    }

    fn check(what: &str, x: f32, got: f32, want: f64, units: f64) {
        let error = (f64::from(got) - want).abs();
        // A unit in the last place of the expected value.
        let unit = f64::from((want as f32).abs().max(f32::MIN_POSITIVE)) * f64::from(f32::EPSILON);
        assert!(error <= units * unit, "{what}({x}) = {got}, should be {want}");
    }

    #[test]
    fn exp_is_accurate() {
        sweep(-87.2, 88.0, |x| check("exp", x, exp(x), f64::from(x).exp(), 2.0));
        sweep(-1e-3, 1e-3, |x| check("exp", x, exp(x), f64::from(x).exp(), 1.0));
        assert_eq!([exp(0.0), exp(f32::NEG_INFINITY), exp(-100.0)], [1.0, 0.0, 0.0]);
        assert!(exp(f32::NAN).is_nan(), "NaN stays NaN");
        assert!(exp(f32::INFINITY) > 1e38);
    }

    #[test]
    fn sigmoid_is_accurate() {
        let expected = |x: f32| 1.0 / (1.0 + (-f64::from(x)).exp());
        sweep(-80.0, 80.0, |x| check("sigmoid", x, sigmoid(x), expected(x), 3.0));
        assert_eq!(sigmoid(f32::INFINITY), 1.0);
        assert!(sigmoid(-1e30) < 1e-37);
    }

    #[test]
    fn tanh_is_accurate() {
        sweep(-20.0, 20.0, |x| check("tanh", x, tanh(x), f64::from(x).tanh(), 5.0));
        sweep(-1e-3, 1e-3, |x| check("tanh", x, tanh(x), f64::from(x).tanh(), 5.0));
        assert_eq!([tanh(1e30), tanh(-1e30), tanh(0.0)], [1.0, -1.0, 0.0]);
    }

    #[test]
    fn normal_cdf_is_accurate() {
        // Values of the normal distribution function to 10 digits, from tables of it.
        for (x, want) in [
            (0.0, 0.5),
            (0.1, 0.539_827_837_3),
            (0.5, 0.691_462_461_3),
            (1.0, 0.841_344_746_1),
            (1.5, 0.933_192_798_7),
            (2.0, 0.977_249_868_1),
            (3.0, 0.998_650_102_0),
            (4.0, 0.999_968_328_8),
        ] {
            for (x, want) in [(x, want), (-x, 1.0 - want)] {
                let error = (f64::from(normal_cdf(x)) - want).abs();
                assert!(error <= 1.2e-7, "Φ({x}) = {}, should be {want}", normal_cdf(x));
            }
        }
        // Far tails, where 1 - Φ has no digits: Φ(-6) = 9.865876450e-10, Φ(-10) = 7.619853024e-24.
        for (x, want) in [(-6.0, 9.865_876_450e-10), (-10.0, 7.619_853_024e-24)] {
            let error = (f64::from(normal_cdf(x)) / want - 1.0).abs();
            assert!(error <= 2e-5, "Φ({x}) = {:e}, should be {want:e}", normal_cdf(x));
        }
        // The derivative is the density: the sum of its trapezoids over small steps is Φ.
        let (step, mut sum) = (1.0 / 1024.0, 0.5_f64);
        let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
        for i in 0..8 * 1024 {
            let x = f64::from(i) * step;
            let want = sum;
            let error = (f64::from(normal_cdf(x as f32)) - want).abs();
            assert!(error <= 2e-7, "Φ({x}) = {}, should be {want}", normal_cdf(x as f32));
            sum += step * (density(x) + density(x + step)) / 2.0;
        }
        assert_eq!([normal_cdf(f32::INFINITY), normal_cdf(-1e30)], [1.0, 0.0]);
    }

    #[test]
    fn sin_cos_is_accurate_for_large_angles() {
        for high in [1.0, 100.0, 131_072.0, 1e6] {
            sweep(-high, high, |x| {
                let (sin, cos) = sin_cos(x);
                let (want_sin, want_cos) = f64::from(x).sin_cos();
                assert!((f64::from(sin) - want_sin).abs() < 2e-7, "sin {x} = {sin}");
                assert!((f64::from(cos) - want_cos).abs() < 2e-7, "cos {x} = {cos}");
            });
        }
    }
}
