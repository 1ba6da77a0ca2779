//! Grids of the IQ formats: a group of values is a point of a fixed set, so that an index of eight
//! to eleven bits stands for eight (or four) values.

mod points;

pub use points::{IQ1, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};

/// Values of the two-bit entries of the IQ2 grids.
pub const LEVELS_2: [f32; 4] = [8.0, 25.0, 43.0, 0.0];
/// Values of the three-bit entries of IQ3_XXS.
pub const LEVELS_3_XXS: [f32; 8] = [4.0, 12.0, 20.0, 28.0, 36.0, 44.0, 52.0, 62.0];
/// Values of the three-bit entries of IQ3_S.
pub const LEVELS_3_S: [f32; 8] = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0];
