//! A product whose result is known, to be tried on a device that was just opened.

use muse_core::Result;
use muse_core::quant::tile::{SIDE, TileFormat};

use crate::cores::Cores;
use crate::device::Device;
use crate::error::device as fault;
use crate::matrix::Matrix;
use crate::op;
use crate::program::Programs;
use crate::weight::Weight;

/// Multiplies small whole numbers, whose sums every format holds exactly. The host library and the
/// headers that the shim was compiled with have no version in common that could be compared: where
/// they lay things out differently, nothing else shows it.
///
/// # Errors
/// [`muse_core::Error::Device`] when the result is wrong, and then no other would be right.
pub fn smoke(device: &Device, programs: &mut Programs) -> Result<()> {
    let number = |at: usize, of: usize| (at % of) as f32 - 1.0;
    let x: Vec<f32> = (0..SIDE * SIDE).map(|i| number(i, 3)).collect();
    let w: Vec<f32> = (0..SIDE * SIDE).map(|i| number(i / 5, 4)).collect();
    let bf16 = TileFormat::Bf16;
    let (a, by) = (Matrix::of(device, bf16, &x, SIDE)?, Weight::of(device, bf16, &w, SIDE)?);
    let out = Matrix::new(device, bf16, SIDE, SIDE)?;
    programs.run(&op::matmul(&a, &by, &out, Cores::grid(1, 1)), true)?;
    let dot = |row: &[f32], other: &[f32]| row.iter().zip(other).map(|(a, b)| a * b).sum::<f32>();
    let rows = x.chunks(SIDE).flat_map(|row| w.chunks(SIDE).map(move |other| dot(row, other)));
    let (got, want) = (out.read()?, rows.collect::<Vec<_>>());
    match got.iter().zip(&want).position(|(got, want)| got != want) {
        None => Ok(()),
        Some(at) => Err(fault(
            "trying a product on the device",
            format!(
                "value {at} of {SIDE} x {SIDE} is {}, expected {}: the host library is not the one \
                 that this build was compiled for; run `cargo xtask tt-setup` and build again",
                got[at], want[at]
            ),
        )),
    }
}
