//! Quantization formats as data: block geometry and the scalar decode that defines them.
//!
//! A format is added here with one file and one line of the table; how fast to multiply by it is
//! a backend's business.

mod bf16;
mod encode;
mod f16;
mod f32;
mod fit;
pub mod grid;
mod groups;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
mod leveled;
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

pub use encode::Encoder;
pub use leveled::Leveled;

/// One line a format: variant, name, values a block, bytes a block, decoder of whole blocks.
macro_rules! formats {
    ($($variant:ident, $name:literal, $values:expr, $bytes:expr, $decode:path;)*) => {
        /// How the values of a tensor are stored.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Format {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Format {
            /// Every format.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name people know it by.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Consecutive values of a row that share a block.
            pub const fn block_values(self) -> usize {
                match self { $(Self::$variant => $values,)* }
            }

            /// Bytes of a block.
            pub const fn block_bytes(self) -> usize {
                match self { $(Self::$variant => $bytes,)* }
            }

            /// Decodes whole blocks.
            ///
            /// # Panics
            /// When `bytes` and `out` are not the same whole number of blocks.
            pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
                assert_eq!(out.len() % self.block_values(), 0, "{} values", self.name());
                assert_eq!(bytes.len(), self.bytes_for(out.len()), "{} bytes", self.name());
                match self { $(Self::$variant => $decode(bytes, out),)* }
            }
        }
    };
}

formats! {
    F32,  "F32",  1, 4, f32::decode;
    F16,  "F16",  1, 2, f16::decode;
    Bf16, "BF16", 1, 2, bf16::decode;
    Q4_0, "Q4_0", q4_0::VALUES, q4_0::BYTES, q4_0::decode;
    Q4_1, "Q4_1", q4_1::VALUES, q4_1::BYTES, q4_1::decode;
    Q5_0, "Q5_0", q5_0::VALUES, q5_0::BYTES, q5_0::decode;
    Q5_1, "Q5_1", q5_1::VALUES, q5_1::BYTES, q5_1::decode;
    Q8_0, "Q8_0", q8_0::VALUES, q8_0::BYTES, q8_0::decode;
    Q2K, "Q2_K", q2_k::VALUES, q2_k::BYTES, leveled::decode::<q2_k::Q2K>;
    Q3K, "Q3_K", q3_k::VALUES, q3_k::BYTES, leveled::decode::<q3_k::Q3K>;
    Q4K, "Q4_K", q4_k::VALUES, q4_k::BYTES, q4_k::decode;
    Q5K, "Q5_K", q5_k::VALUES, q5_k::BYTES, q5_k::decode;
    Q6K, "Q6_K", q6_k::VALUES, q6_k::BYTES, q6_k::decode;
    Iq1S, "IQ1_S", iq1_s::VALUES, iq1_s::BYTES, leveled::decode::<iq1_s::Iq1S>;
    Iq1M, "IQ1_M", iq1_m::VALUES, iq1_m::BYTES, leveled::decode::<iq1_m::Iq1M>;
    Iq2Xxs, "IQ2_XXS", iq2_xxs::VALUES, iq2_xxs::BYTES, leveled::decode::<iq2_xxs::Iq2Xxs>;
    Iq2Xs, "IQ2_XS", iq2_xs::VALUES, iq2_xs::BYTES, leveled::decode::<iq2_xs::Iq2Xs>;
    Iq2S, "IQ2_S", iq2_s::VALUES, iq2_s::BYTES, leveled::decode::<iq2_s::Iq2S>;
    Iq3Xxs, "IQ3_XXS", iq3_xxs::VALUES, iq3_xxs::BYTES, leveled::decode::<iq3_xxs::Iq3Xxs>;
    Iq3S, "IQ3_S", iq3_s::VALUES, iq3_s::BYTES, leveled::decode::<iq3_s::Iq3S>;
    Iq4Nl, "IQ4_NL", iq4_nl::VALUES, iq4_nl::BYTES, iq4_nl::decode;
    Iq4Xs, "IQ4_XS", iq4_xs::VALUES, iq4_xs::BYTES, iq4_xs::decode;
    Mxfp4, "MXFP4", mxfp4::VALUES, mxfp4::BYTES, leveled::decode::<mxfp4::Mxfp4>;
}

impl Format {
    /// Bytes of `values` values, a whole number of blocks.
    pub const fn bytes_for(self, values: usize) -> usize {
        values / self.block_values() * self.block_bytes()
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The half-precision number at `at`.
fn half_at(block: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Nibble `j` of 32 where byte `j % 16` holds `j < 16` low and the others high.
fn nibble(bytes: &[u8], j: usize) -> u8 {
    bytes[j % 16] >> (4 * (j / 16)) & 15
}

/// Number `j` of 256 two-bit ones: halves of 128 in 32 bytes, runs of 32 from the lowest bits up.
fn two_bits(bytes: &[u8], j: usize) -> u8 {
    bytes[j / 128 * 32 + j % 32] >> (2 * (j / 32 % 4)) & 3
}
