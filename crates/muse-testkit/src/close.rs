//! Comparing floats with a stated tolerance.

/// Largest absolute difference; infinite when a value is not a number or lengths differ.
pub fn max_abs_diff(got: &[f32], want: &[f32]) -> f32 {
    if got.len() != want.len() {
        return f32::INFINITY;
    }
    let differ = |(a, b): (&f32, &f32)| {
        let diff = (a - b).abs();
        if diff.is_nan() { f32::INFINITY } else { diff }
    };
    got.iter().zip(want).map(differ).fold(0.0, f32::max)
}

/// Panics unless all values are within `tolerance` of the expected ones.
#[track_caller]
pub fn assert_close(what: &str, got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len(), "{what}: lengths differ");
    let worst = max_abs_diff(got, want);
    assert!(worst <= tolerance, "{what}: max |difference| {worst:e} is above {tolerance:e}");
}

/// Pearson's correlation of two sequences: 1 when they are equal, 0 when a value is not a number
/// or lengths differ. Two constant sequences correlate when they are equal.
pub fn correlation(got: &[f32], want: &[f32]) -> f64 {
    if got.len() != want.len() || got.is_empty() {
        return 0.0;
    }
    let mean = |x: &[f32]| x.iter().map(|x| f64::from(*x)).sum::<f64>() / x.len() as f64;
    let (a, b) = (mean(got), mean(want));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in got.iter().zip(want) {
        let (x, y) = (f64::from(*x) - a, f64::from(*y) - b);
        (ab, aa, bb) = (ab + x * y, aa + x * x, bb + y * y);
    }
    if aa == 0.0 && bb == 0.0 {
        return f64::from(u8::from(a == b));
    }
    let found = ab / (aa * bb).sqrt();
    if found.is_nan() { 0.0 } else { found }
}
