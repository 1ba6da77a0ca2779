//! How rows of weights and of the KV cache are stored, where kernels read them as they are.

use muse_core::contract::KvType;
use muse_core::quant::{Format, q8_0};

/// How the values of a row are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Layout {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// BF16: the upper half of single precision.
    Bf16,
    /// Quant blocks of a half-precision scale and 32 signed bytes.
    Q8_0,
}

impl Layout {
    /// All layouts.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Bf16, Self::Q8_0];

    /// The layout with the bytes of a format, if there is one.
    pub fn of(format: Format) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| layout.format() == format)
    }

    /// The format with the same bytes.
    pub const fn format(self) -> Format {
        match self {
            Self::F32 => Format::F32,
            Self::F16 => Format::F16,
            Self::Bf16 => Format::Bf16,
            Self::Q8_0 => Format::Q8_0,
        }
    }

    /// Encodes a row, a whole number of quant blocks.
    pub(crate) fn encode(self, row: &[f32], bytes: &mut [u8]) {
        assert_eq!(bytes.len(), self.format().bytes_for(row.len()), "bytes of a {self:?} row");
        match self {
            Self::F32 => {
                for (raw, x) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(row) {
                    *raw = x.to_le_bytes();
                }
            }
            Self::F16 => {
                for (raw, &x) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(row) {
                    *raw = half::f16::from_f32(x).to_le_bytes();
                }
            }
            Self::Bf16 => {
                for (raw, &x) in bytes.as_chunks_mut::<2>().0.iter_mut().zip(row) {
                    *raw = half::bf16::from_f32(x).to_le_bytes();
                }
            }
            Self::Q8_0 => {
                let blocks = bytes.as_chunks_mut::<{ q8_0::BYTES }>().0;
                for (block, x) in blocks.iter_mut().zip(row.as_chunks::<{ q8_0::VALUES }>().0) {
                    q8_0::encode(x, block);
                }
            }
        }
    }
}

#[cfg(test)]
impl Layout {
    /// Test values in -1 to 1, as this layout decodes them, and their bytes.
    pub(crate) fn test_values(self, n: usize, seed: u32) -> (Vec<f32>, Vec<u8>) {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let values: Vec<f32> = (0..n).map(|_| next()).collect();
        let mut bytes = vec![0; self.format().bytes_for(n)];
        self.encode(&values, &mut bytes);
        let mut decoded = vec![0.0; n];
        self.format().decode(&bytes, &mut decoded);
        (decoded, bytes)
    }
}

impl From<KvType> for Layout {
    fn from(kind: KvType) -> Self {
        match kind {
            KvType::F32 => Self::F32,
            KvType::Bf16 => Self::Bf16,
            KvType::F16 => Self::F16,
            KvType::Q8_0 => Self::Q8_0,
        }
    }
}

/// Bytes of a row of `values` values, a whole number of quant blocks.
pub(crate) const fn row_bytes<const LAYOUT: u8>(values: usize) -> usize {
    let format = layout::<LAYOUT>().format();
    // Kernels read whole quant blocks unchecked.
    assert!(values.is_multiple_of(format.block_values()), "rows of whole quant blocks");
    format.bytes_for(values)
}

/// Value `i` of a row.
#[inline(always)]
pub(crate) fn value<const LAYOUT: u8>(row: &[u8], i: usize) -> f32 {
    match layout::<LAYOUT>() {
        Layout::F32 => f32::from_le_bytes(row.as_chunks().0[i]),
        // The const conversion does not detect CPU features, which would cost more than it saves
        // here.
        Layout::F16 => half::f16::from_le_bytes(row.as_chunks().0[i]).to_f32_const(),
        Layout::Bf16 => half::bf16::from_le_bytes(row.as_chunks().0[i]).to_f32(),
        Layout::Q8_0 => {
            let block: &[u8; q8_0::BYTES] = &row.as_chunks().0[i / q8_0::VALUES];
            let scale = half::f16::from_le_bytes([block[0], block[1]]).to_f32_const();
            scale * f32::from(block[2 + i % q8_0::VALUES] as i8)
        }
    }
}

/// The layout that a kernel is generic over, since const parameters cannot be enums.
pub(crate) const fn layout<const LAYOUT: u8>() -> Layout {
    Layout::ALL[LAYOUT as usize]
}
