//! A product with a known result, computed on a device that was just opened.

use muse_core::Result;
use muse_core::quant::tile::{SIDE, TileFormat};

use crate::cores::Cores;
use crate::device::Device;
use crate::error::device_error;
use crate::matrix::Matrix;
use crate::op;
use crate::program::Programs;
use crate::weight::Weight;

/// Multiplies small integers, whose sums are exact in every format. The host library and the
/// headers that the shim was compiled with carry no version that could be compared, so that only a
/// wrong result reveals types that they lay out differently.
///
/// # Errors
/// [`muse_core::Error::Device`] when the result is wrong or the device fails.
pub fn smoke_test(device: &Device, programs: &mut Programs) -> Result<()> {
    let small = |at: usize, modulus: usize| (at % modulus) as f32 - 1.0;
    let x: Vec<f32> = (0..SIDE * SIDE).map(|i| small(i, 3)).collect();
    let w: Vec<f32> = (0..SIDE * SIDE).map(|i| small(i / 5, 4)).collect();
    let bf16 = TileFormat::Bf16;
    let (a, by) = (
        Matrix::from_values(device, bf16, &x, SIDE)?,
        Weight::from_values(device, bf16, &w, SIDE)?,
    );
    let out = Matrix::new(device, bf16, SIDE, SIDE)?;
    programs.run(&op::matmul(&a, &by, &out, Cores::grid(1, 1)), true)?;
    let dot = |row: &[f32], other: &[f32]| row.iter().zip(other).map(|(a, b)| a * b).sum::<f32>();
    let rows = x.chunks(SIDE).flat_map(|row| w.chunks(SIDE).map(move |other| dot(row, other)));
    let (actual, expected) = (out.read()?, rows.collect::<Vec<_>>());
    match actual.iter().zip(&expected).position(|(actual, expected)| actual != expected) {
        None => Ok(()),
        Some(at) => Err(device_error(
            "testing the device with a small product",
            format!(
                "value {at} of {SIDE} x {SIDE} is {}, expected {}: the host library is not the one \
                 that this build was compiled for; run `cargo xtask tt-setup` and build again",
                actual[at], expected[at]
            ),
        )),
    }
}
