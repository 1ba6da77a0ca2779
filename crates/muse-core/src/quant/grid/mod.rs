//! Grids of the IQ formats: eight (or four) values are one point of a fixed set, so that an index
//! of eight to eleven bits stands for all of them.

mod points;

pub use points::{IQ1, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};

/// Values that the two-bit entries of the IQ2 grids stand for.
pub const IQ2_VALUES: [f32; 4] = [8.0, 25.0, 43.0, 0.0];
/// Values that the three-bit entries of IQ3_XXS stand for.
pub const IQ3_XXS_VALUES: [f32; 8] = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];
/// Values that the three-bit entries of IQ3_S stand for.
pub const IQ3_S_VALUES: [f32; 8] = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0];
