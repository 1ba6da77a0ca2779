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

/// Panics unless all values are within `tolerance` of the wanted ones.
#[track_caller]
pub fn assert_close(what: &str, got: &[f32], want: &[f32], tolerance: f32) {
    assert_eq!(got.len(), want.len(), "{what}: lengths differ");
    let worst = max_abs_diff(got, want);
    assert!(worst <= tolerance, "{what}: max |difference| {worst:e} is above {tolerance:e}");
}
