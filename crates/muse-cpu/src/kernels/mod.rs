//! The inner loops, a folder an operation: scalar definition and one file per instruction set.

pub mod linear;
pub mod mix;
