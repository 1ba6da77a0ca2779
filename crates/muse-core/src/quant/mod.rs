//! Quantization formats as data: the geometry of their quant blocks, the scalar decoders that
//! define them, and encoders. Block formats are those of GGUF, bit for bit.
//!
//! A format is added with a file here and a line in the table of `format.rs`. Fast kernels for it
//! are a matter of each backend.

mod bf16;
mod bits;
mod codebook;
mod encode;
mod f16;
mod f32;
mod format;
pub mod grid;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
mod k_groups;
mod least_squares;
pub mod mxfp4;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod sign;
pub mod tile;

pub use codebook::Codebook;
pub use encode::Encoder;
pub use format::Format;
