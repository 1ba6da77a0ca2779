//! Quantization formats as data: block geometry and the scalar decode that defines them.
//!
//! A format is added here with one file and one line of the table; how fast to multiply by it is
//! a backend's business.

mod bf16;
mod f16;
mod f32;
pub mod q8_0;

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
    F32,  "F32",  1,            4,           f32::decode;
    F16,  "F16",  1,            2,           f16::decode;
    Bf16, "BF16", 1,            2,           bf16::decode;
    Q8_0, "Q8_0", q8_0::VALUES, q8_0::BYTES, q8_0::decode;
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
