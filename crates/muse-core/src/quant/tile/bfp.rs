//! Block floating point: 16 values share the exponent of the largest; each has a sign and a
//! magnitude with an explicit leading bit. BFP8_B keeps 7 bits of magnitude, BFP4_B 3.
//!
//! `value = ± magnitude · 2^(exponent − 127 − (bits − 1))`. Encoding equals
//! Tenstorrent's host packer bit for bit; the device's own packer rounds ties differently.

use super::geometry::{FACE, VALUES};

/// Values that share an exponent.
const GROUP: usize = FACE;
/// Bits of the mantissa of an `f32`, the implicit leading bit included.
const F32_MANTISSA_BITS: u32 = 24;

/// A block floating point format, by the bits of its magnitudes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bfp {
    bits: u32,
}

impl Bfp {
    /// BFP8_B.
    pub const EIGHT: Self = Self { bits: 7 };
    /// BFP4_B: two values per byte, the earlier one in the low half.
    pub const FOUR: Self = Self { bits: 3 };

    /// Bytes of a tile: the exponents of all groups, then signs and magnitudes.
    pub(super) const fn tile_bytes(self) -> usize {
        VALUES / GROUP + VALUES / self.values_per_byte()
    }

    const fn values_per_byte(self) -> usize {
        8 / (self.bits as usize + 1)
    }

    /// Encodes a tile; values are in the order of its faces.
    pub(super) fn encode_tile(self, values: &[f32; VALUES], bytes: &mut [u8]) {
        let (exponents, codes) = bytes.split_at_mut(VALUES / GROUP);
        codes.fill(0);
        for (at, (group, shared)) in values.as_chunks().0.iter().zip(exponents).enumerate() {
            *shared = exponent(group);
            for (i, value) in group.iter().enumerate() {
                let (byte, shift) = self.position(at * GROUP + i);
                codes[byte] |= self.code(*value, *shared) << shift;
            }
        }
    }

    /// Decodes a tile; values are in the order of its faces.
    pub(super) fn decode_tile(self, bytes: &[u8], values: &mut [f32; VALUES]) {
        let (exponents, codes) = bytes.split_at(VALUES / GROUP);
        for (i, value) in values.iter_mut().enumerate() {
            let (byte, shift) = self.position(i);
            *value = self.value(codes[byte] >> shift, exponents[i / GROUP]);
        }
    }

    /// Rounds values that share an exponent to values that the format represents.
    pub fn round(self, group: &mut [f32; GROUP]) {
        let shared = exponent(group);
        for value in group {
            *value = self.value(self.code(*value, shared), shared);
        }
    }

    /// The byte after the exponents that holds value `i`, and the bit at which the value begins.
    const fn position(self, i: usize) -> (usize, usize) {
        let per_byte = self.values_per_byte();
        (i / per_byte, i % per_byte * (8 / per_byte))
    }

    /// Sign and magnitude of a value under a shared exponent.
    fn code(self, value: f32, shared: u8) -> u8 {
        let bits = value.to_bits();
        let own = bits >> 23 & 255;
        if own == 0 {
            return 0;
        }
        // Bits that the shift to the shared exponent drops do not take part in the rounding.
        let magnitude = (1 << 23 | bits & 0x7f_ffff) >> (u32::from(shared) - own).min(31);
        let dropped = F32_MANTISSA_BITS - self.bits;
        let (kept, rest) = (magnitude >> dropped, magnitude & ((1 << dropped) - 1));
        let tie = 1 << (dropped - 1);
        let up = rest > tie || rest == tie && kept & 1 == 1;
        let rounded = (kept + u32::from(up)).min((1 << self.bits) - 1) as u8;
        let sign = if rounded == 0 { 0 } else { (bits >> 31) as u8 };
        sign << self.bits | rounded
    }

    /// The value of a sign and a magnitude in the lowest bits of `code`.
    fn value(self, code: u8, shared: u8) -> f32 {
        let magnitude = f32::from(code & ((1 << self.bits) - 1));
        let power = i32::from(shared) - 127 - (self.bits as i32 - 1);
        // Two factors, since the largest and smallest powers of two are no normal numbers.
        let half = power / 2;
        let value = magnitude * two_to(half) * two_to(power - half);
        if code >> self.bits & 1 == 1 { -value } else { value }
    }
}

/// The largest biased exponent of a group.
fn exponent(group: &[f32; GROUP]) -> u8 {
    group.iter().map(|value| (value.to_bits() >> 23) as u8).max().unwrap_or_default()
}

fn two_to(power: i32) -> f32 {
    f32::from_bits(((power + 127) as u32) << 23)
}
