//! The table of formats.

use super::{
    bf16, codebook, f16, f32, iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, iq4_nl, iq4_xs,
    mxfp4, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0,
};

/// One line per format: variant, name, values of a quant block, its bytes, the decoder.
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

            /// The format's name, as GGUF tools print it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Consecutive values of a row that a quant block holds.
            pub const fn block_values(self) -> usize {
                match self { $(Self::$variant => $values,)* }
            }

            /// Bytes of a quant block.
            pub const fn block_bytes(self) -> usize {
                match self { $(Self::$variant => $bytes,)* }
            }

            /// Decodes whole quant blocks.
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
    Q2K, "Q2_K", q2_k::VALUES, q2_k::BYTES, codebook::decode::<q2_k::Q2K>;
    Q3K, "Q3_K", q3_k::VALUES, q3_k::BYTES, codebook::decode::<q3_k::Q3K>;
    Q4K, "Q4_K", q4_k::VALUES, q4_k::BYTES, q4_k::decode;
    Q5K, "Q5_K", q5_k::VALUES, q5_k::BYTES, q5_k::decode;
    Q6K, "Q6_K", q6_k::VALUES, q6_k::BYTES, q6_k::decode;
    Iq1S, "IQ1_S", iq1_s::VALUES, iq1_s::BYTES, codebook::decode::<iq1_s::Iq1S>;
    Iq1M, "IQ1_M", iq1_m::VALUES, iq1_m::BYTES, codebook::decode::<iq1_m::Iq1M>;
    Iq2Xxs, "IQ2_XXS", iq2_xxs::VALUES, iq2_xxs::BYTES, codebook::decode::<iq2_xxs::Iq2Xxs>;
    Iq2Xs, "IQ2_XS", iq2_xs::VALUES, iq2_xs::BYTES, codebook::decode::<iq2_xs::Iq2Xs>;
    Iq2S, "IQ2_S", iq2_s::VALUES, iq2_s::BYTES, codebook::decode::<iq2_s::Iq2S>;
    Iq3Xxs, "IQ3_XXS", iq3_xxs::VALUES, iq3_xxs::BYTES, codebook::decode::<iq3_xxs::Iq3Xxs>;
    Iq3S, "IQ3_S", iq3_s::VALUES, iq3_s::BYTES, codebook::decode::<iq3_s::Iq3S>;
    Iq4Nl, "IQ4_NL", iq4_nl::VALUES, iq4_nl::BYTES, iq4_nl::decode;
    Iq4Xs, "IQ4_XS", iq4_xs::VALUES, iq4_xs::BYTES, iq4_xs::decode;
    Mxfp4, "MXFP4", mxfp4::VALUES, mxfp4::BYTES, codebook::decode::<mxfp4::Mxfp4>;
}

impl Format {
    /// Bytes of `values` values, which must be a whole number of quant blocks.
    pub const fn bytes_for(self, values: usize) -> usize {
        values / self.block_values() * self.block_bytes()
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
