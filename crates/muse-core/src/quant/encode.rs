//! Encodes values in a format, by least squares where the format is quantized. Only formats that
//! files are commonly written in have an encoder.

use super::format::Format;
use super::least_squares::inverse;
use super::{q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0};

/// The smallest weight of a value in a fit.
const MIN_WEIGHT: f32 = 1e-4;

/// Encodes values in one format.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    format: Format,
    encode: fn(&[f32], Option<&[f32]>, &mut [u8]),
}

impl Format {
    /// The encoder of the format, or `None` for formats that are only decoded.
    pub fn encoder(self) -> Option<Encoder> {
        let encode: fn(&[f32], Option<&[f32]>, &mut [u8]) = match self {
            Self::F32 => |x, _, out| words(x, out, f32::to_le_bytes),
            Self::F16 => |x, _, out| words(x, out, |x| half::f16::from_f32(x).to_le_bytes()),
            Self::Bf16 => |x, _, out| words(x, out, |x| half::bf16::from_f32(x).to_le_bytes()),
            Self::Q4_0 => |x, w, out| blocks(x, w, out, q4_0::encode),
            Self::Q4_1 => |x, w, out| blocks(x, w, out, q4_1::encode),
            Self::Q5_0 => |x, w, out| blocks(x, w, out, q5_0::encode),
            Self::Q5_1 => |x, w, out| blocks(x, w, out, q5_1::encode),
            Self::Q8_0 => |x, w, out| blocks(x, w, out, |x, _, block| q8_0::encode(x, block)),
            Self::Q4K => |x, w, out| blocks(x, w, out, q4_k::encode),
            Self::Q5K => |x, w, out| blocks(x, w, out, q5_k::encode),
            Self::Q6K => |x, w, out| blocks(x, w, out, q6_k::encode),
            _ => return None,
        };
        Some(Encoder { format: self, encode })
    }
}

impl Encoder {
    /// The format that it encodes to.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Encodes whole quant blocks so that the squared error, weighted by `importance` where given,
    /// is small. A block with values that are not finite decodes to unspecified values.
    ///
    /// # Panics
    /// When `values` and `bytes` are not the same whole number of blocks, or `importance` does not
    /// have one number per value.
    pub fn encode(&self, values: &[f32], importance: Option<&[f32]>, bytes: &mut [u8]) {
        let Self { format, encode } = self;
        assert!(values.len().is_multiple_of(format.block_values()), "{format} values");
        assert_eq!(bytes.len(), format.bytes_for(values.len()), "{format} bytes");
        assert!(importance.is_none_or(|w| w.len() == values.len()), "one importance per value");
        encode(values, importance, bytes);
    }
}

fn words<const B: usize>(values: &[f32], bytes: &mut [u8], encode: impl Fn(f32) -> [u8; B]) {
    for (word, &value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
        *word = encode(value);
    }
}

fn blocks<const V: usize, const B: usize>(
    values: &[f32],
    importance: Option<&[f32]>,
    bytes: &mut [u8],
    encode: impl Fn(&[f32; V], &[f32; V], &mut [u8; B]),
) {
    // Fields narrower than a byte are OR-ed into zeros.
    bytes.fill(0);
    let blocks = values.as_chunks().0.iter().zip(bytes.as_chunks_mut().0);
    match importance {
        None => blocks.for_each(|(values, block)| encode(values, &[1.0; V], block)),
        Some(importance) => {
            let weights = importance.as_chunks().0.iter().map(weights);
            blocks.zip(weights).for_each(|((values, block), w)| encode(values, &w, block));
        }
    }
}

/// Importances scaled to a mean of 1 and raised to at least [`MIN_WEIGHT`]: a value of weight 0
/// would not be fitted at all.
fn weights<const V: usize>(importance: &[f32; V]) -> [f32; V] {
    let mean = importance.iter().sum::<f32>() / V as f32;
    let factor = inverse(mean);
    if factor == 0.0 { [1.0; V] } else { importance.map(|x| (x * factor).max(MIN_WEIGHT)) }
}
