//! Random blocks of every format whose values are of an ordinary size.

use half::{bf16, f16};
use muse_core::quant::Format;

/// Size of the values, as that of weights at initialization.
const SPREAD: f32 = 0.02;
/// Blocks that are looked at to find a format's size under a scale of 1.
const SAMPLE: usize = 256;
/// The four-bit places of IQ1_M's scale: the high halves of these bytes, lowest first.
const IQ1_M: [usize; 4] = [49, 51, 53, 55];

/// An endless supply of blocks; equal seeds give equal ones.
#[derive(Clone, Debug)]
pub struct Blocks {
    format: Format,
    random: Random,
    scale: f32,
}

impl Blocks {
    /// Blocks of a format.
    pub fn new(format: Format, seed: u64) -> Self {
        let mut blocks = Self { format, random: Random::new(seed), scale: 1.0 };
        if format.block_values() > 1 {
            let mut sample = vec![0; SAMPLE * format.block_bytes()];
            blocks.fill(&mut sample);
            let mut values = vec![0.0; SAMPLE * format.block_values()];
            format.decode(&sample, &mut values);
            let mean = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
            blocks.scale = SPREAD / mean.sqrt();
        }
        blocks
    }

    /// Fills whole blocks.
    ///
    /// # Panics
    /// When they are not whole.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        assert!(bytes.len().is_multiple_of(self.format.block_bytes()), "whole blocks");
        for word in bytes.chunks_mut(8) {
            word.copy_from_slice(&self.random.next().to_le_bytes()[..word.len()]);
        }
        match self.format {
            Format::F32 => words(bytes, |word| {
                even(i32::from_le_bytes(word) as f32 / 2_f32.powi(31)).to_le_bytes()
            }),
            Format::F16 => words(bytes, |word| f16::from_f32(even_half(word)).to_le_bytes()),
            Format::Bf16 => words(bytes, |word| bf16::from_f32(even_half(word)).to_le_bytes()),
            format => {
                for block in bytes.chunks_exact_mut(format.block_bytes()) {
                    // Scales differ by a half up and down.
                    let scale = self.scale * (0.5 + f32::from(block[1] & 15) / 15.0);
                    put_scale(format, scale, block);
                }
            }
        }
    }
}

fn words<const B: usize>(bytes: &mut [u8], value: impl Fn([u8; B]) -> [u8; B]) {
    bytes.as_chunks_mut().0.iter_mut().for_each(|word| *word = value(*word));
}

/// A value of the right size from one that is even in -1..1.
fn even(unit: f32) -> f32 {
    unit * SPREAD * 3_f32.sqrt()
}

fn even_half(word: [u8; 2]) -> f32 {
    even(f32::from(i16::from_le_bytes(word)) / 2_f32.powi(15))
}

/// Offsets of the half-precision numbers of a block, and factors on the scale: those of minimums
/// bring the mean near 0.
fn halves(format: Format) -> &'static [(usize, f32)] {
    match format {
        Format::Q4_1 => &[(0, 1.0), (2, -7.5)],
        Format::Q5_1 => &[(0, 1.0), (2, -15.5)],
        Format::Q2K => &[(80, 1.0), (82, 1.5)],
        Format::Q3K => &[(108, 1.0)],
        Format::Q4K => &[(0, 1.0), (2, 7.5)],
        Format::Q5K => &[(0, 1.0), (2, 15.5)],
        Format::Q6K => &[(208, 1.0)],
        _ => &[(0, 1.0)],
    }
}

fn put_scale(format: Format, scale: f32, block: &mut [u8]) {
    match format {
        // A power of two: the exponent of a single.
        Format::Mxfp4 => block[0] = (scale.to_bits() >> 23) as u8,
        Format::Iq1M => {
            let bits = f16::from_f32(scale).to_bits();
            for (i, at) in IQ1_M.into_iter().enumerate() {
                block[at] = block[at] & 15 | ((bits >> (4 * i) & 15) << 4) as u8;
            }
        }
        _ => {
            for &(at, factor) in halves(format) {
                let half = f16::from_f32(scale * factor);
                block[at..][..2].copy_from_slice(&half.to_le_bytes());
            }
        }
    }
}

/// SplitMix64: eight random bytes at a time.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    /// Seeds lie far apart, so that their numbers do not overlap.
    fn new(seed: u64) -> Self {
        Self(Self(seed).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_values_of_the_size_of_weights() {
        for &format in Format::ALL {
            let count = 512;
            let mut bytes = vec![0; count * format.block_bytes()];
            Blocks::new(format, 7).fill(&mut bytes);
            let mut values = vec![0.0; count * format.block_values()];
            format.decode(&bytes, &mut values);
            let mean = values.iter().sum::<f32>() / values.len() as f32;
            let size = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
            assert!((0.5..2.0).contains(&(size.sqrt() / SPREAD)), "{format}: {}", size.sqrt());
            assert!(mean.abs() < 0.25 * SPREAD, "{format}: mean {mean}");
            let largest = values.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
            assert!(largest < 1.0, "{format}: {largest}");
        }
    }

    #[test]
    fn seeds_decide() {
        let bytes = |seed| {
            let mut bytes = vec![0; 1440];
            Blocks::new(Format::Q4K, seed).fill(&mut bytes);
            bytes
        };
        assert_eq!(bytes(3), bytes(3));
        assert_ne!(bytes(3), bytes(4));
    }
}
