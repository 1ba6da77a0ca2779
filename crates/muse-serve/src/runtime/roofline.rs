//! What a forward pass must read and compute, and what the device does at most a second: their
//! quotient is the shortest time a pass can take, whatever the kernels.

use std::time::Duration;

use muse_core::contract::WeightSource;
use muse_core::quant::Format;

use super::model_card::{file_bytes, text_tensors};

/// Bytes read and operations done in a second, at most, by the whole device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Bytes read from memory.
    pub read: f64,
    /// Operations of 8-bit integer products, two a product. Those of `f32` where the device has no
    /// such products; the same holds for `bf16`.
    pub int8: f64,
    /// Operations of BF16 products.
    pub bf16: f64,
    /// Operations of F32 products.
    pub f32: f64,
}

impl Roofline {
    /// The larger of each. Other work on the machine only lowers a measurement.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            read: self.read.max(other.read),
            int8: self.int8.max(other.int8),
            bf16: self.bf16.max(other.bf16),
            f32: self.f32.max(other.f32),
        }
    }
}

/// What multiplying by some matrices takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MatrixWork {
    /// Bytes of the matrices in the file.
    pub bytes: u64,
    /// Operations a token, two a weight, with matrices multiplied as 8-bit integers.
    pub int8: f64,
    /// With matrices multiplied as BF16.
    pub bf16: f64,
    /// With matrices multiplied as F32.
    pub f32: f64,
}

impl MatrixWork {
    fn add(&mut self, format: Format, bytes: u64, weights: usize) {
        self.bytes += bytes;
        *match format {
            Format::Bf16 => &mut self.bf16,
            Format::F32 | Format::F16 => &mut self.f32,
            _ => &mut self.int8,
        } += 2.0 * weights as f64;
    }

    /// Operations a token, of all kinds.
    pub fn operations(&self) -> f64 {
        self.int8 + self.bf16 + self.f32
    }

    /// Seconds of computing for so many tokens.
    fn seconds(&self, tokens: usize, roofline: &Roofline) -> f64 {
        let a_token =
            self.int8 / roofline.int8 + self.bf16 / roofline.bf16 + self.f32 / roofline.f32;
        a_token * tokens as f64
    }
}

/// What the matrices of a model take in a forward pass. Norms, attention and the embedding are left
/// out: they are small beside the matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassWork {
    /// Of the layers, for every token.
    pub layers: MatrixWork,
    /// Of the LM head, for tokens whose logits are computed.
    pub lm_head: MatrixWork,
}

impl PassWork {
    pub(super) fn of(source: &dyn WeightSource) -> Self {
        let mut work = Self::default();
        for tensor in text_tensors(source).filter(|tensor| tensor.rows > 1) {
            let part = match tensor.name.as_str() {
                "token_embd.weight" => continue,
                "output.weight" => &mut work.lm_head,
                _ => &mut work.layers,
            };
            part.add(tensor.format, file_bytes(tensor), tensor.rows * tensor.cols);
        }
        work
    }

    /// The shortest time of a pass of so many tokens, logits computed for `logits` of them: that of
    /// reading every matrix once, or of multiplying, whichever is longer.
    pub fn min_time(&self, tokens: usize, logits: usize, roofline: &Roofline) -> Duration {
        let lm_head = if logits > 0 { self.lm_head.bytes } else { 0 };
        let reads = (self.layers.bytes + lm_head) as f64 / roofline.read;
        let computes =
            self.layers.seconds(tokens, roofline) + self.lm_head.seconds(logits, roofline);
        Duration::from_secs_f64(reads.max(computes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOFLINE: Roofline = Roofline { read: 10.0, int8: 400.0, bf16: 200.0, f32: 100.0 };

    #[test]
    fn the_slower_of_reading_and_computing_binds() {
        let mut work = PassWork::default();
        work.layers.add(Format::Q4K, 50, 200);
        work.layers.add(Format::Bf16, 150, 100);
        work.lm_head.add(Format::F32, 100, 50);
        assert_eq!(work.layers.operations(), 600.0);
        // 200 bytes; 400 / 400 + 200 / 200 seconds a token.
        assert_eq!(work.min_time(1, 0, &ROOFLINE).as_secs_f64(), 20.0);
        assert_eq!(work.min_time(100, 0, &ROOFLINE).as_secs_f64(), 200.0);
        // The LM head's 100 bytes once, its 100 / 100 seconds for each token with logits.
        assert_eq!(work.min_time(1, 1, &ROOFLINE).as_secs_f64(), 30.0);
        assert_eq!(work.min_time(100, 7, &ROOFLINE).as_secs_f64(), 207.0);
    }

    #[test]
    fn the_best_of_two_measurements_counts() {
        let other = Roofline { read: 20.0, int8: 1.0, bf16: 300.0, f32: 100.0 };
        let best = Roofline { read: 20.0, int8: 400.0, bf16: 300.0, f32: 100.0 };
        assert_eq!(ROOFLINE.max(other), best);
    }
}
