//! A checkpoint whose matrices are rounded to the block float formats of a Tenstorrent card, for
//! devices that store them otherwise. They are returned as BF16, which holds every BFP value.

use std::borrow::Cow;

use crate::Result;
use crate::contract::{
    CheckpointSpec, GenerationDefaults, TensorInfo, Vocabulary, WeightSource, WeightView,
};
use crate::quant::Format;
use crate::quant::tile::{Bfp, FACE, TileFormat};

/// Which block float formats the matrices of a model are rounded to. The embedding and the norms
/// are not rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BfpPolicy {
    /// All in BFP8_B.
    Bfp8,
    /// The feed-forward in BFP4_B, attention, LM head and the drafter's projection in BFP8_B, as the
    /// published configuration has it.
    Bfp4,
}

impl BfpPolicy {
    /// The format of a tensor by its canonical name; none for tensors that are not rounded.
    pub fn format(self, name: &str) -> Option<TileFormat> {
        let part = name.strip_suffix(".weight")?.rsplit('.').next()?;
        match (part, self) {
            ("ffn_gate" | "ffn_up" | "ffn_down", Self::Bfp4) => Some(TileFormat::Bfp4),
            (
                "ffn_gate" | "ffn_up" | "ffn_down" | "attn_q" | "attn_k" | "attn_v" | "attn_gate"
                | "attn_output" | "fc",
                _,
            ) => Some(TileFormat::Bfp8),
            ("output", _) if name == "output.weight" => Some(TileFormat::Bfp8),
            _ => None,
        }
    }
}

/// A checkpoint whose matrices are rounded as they are read.
pub struct RoundedWeights<'a> {
    source: &'a dyn WeightSource,
    policy: BfpPolicy,
    tensors: Vec<TensorInfo>,
}

impl<'a> RoundedWeights<'a> {
    /// Rounds the matrices of `source`.
    pub fn new(source: &'a dyn WeightSource, policy: BfpPolicy) -> Self {
        let mut tensors = source.tensors().to_vec();
        for tensor in tensors.iter_mut().filter(|t| rounding(policy, &t.name).is_some()) {
            tensor.format = Format::Bf16;
        }
        Self { source, policy, tensors }
    }
}

impl WeightSource for RoundedWeights<'_> {
    fn spec(&self) -> &CheckpointSpec {
        self.source.spec()
    }

    fn generation(&self) -> &GenerationDefaults {
        self.source.generation()
    }

    fn vocabulary(&self) -> Result<Option<Vocabulary>> {
        self.source.vocabulary()
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn weight(&self, name: &str) -> Result<WeightView<'_>> {
        let view = self.source.weight(name)?;
        let Some(bfp) = rounding(self.policy, name) else { return Ok(view) };
        let mut values = view.to_f32();
        round(&mut values, view.cols, bfp);
        let bytes = values.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect();
        Ok(WeightView { format: Format::Bf16, bytes: Cow::Owned(bytes), ..view })
    }

    fn release(&self, name: &str) {
        self.source.release(name);
    }
}

fn rounding(policy: BfpPolicy, name: &str) -> Option<Bfp> {
    policy.format(name)?.bfp()
}

/// Rounds a matrix `[N, K]`. Groups lie along N: the card holds the transpose.
fn round(values: &mut [f32], cols: usize, bfp: Bfp) {
    for rows in values.chunks_mut(FACE * cols) {
        for col in 0..cols {
            let mut group = [0.0; FACE];
            let column = |rows: &[f32], i: usize| rows.get(i * cols + col).copied();
            for (i, value) in group.iter_mut().enumerate() {
                // Tiles are padded with zeros, which do not change a group's exponent.
                *value = column(rows, i).unwrap_or(0.0);
            }
            bfp.round(&mut group);
            rows.iter_mut().skip(col).step_by(cols).zip(group).for_each(|(to, from)| *to = from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounding equals encoding the transpose into tiles and decoding it.
    #[test]
    fn rounding_equals_encoding_into_tiles() {
        for (rows, cols) in [(32, 32), (40, 7), (1, 3)] {
            let matrix: Vec<f32> =
                (0..rows * cols).map(|i| (i as f32 * 0.37).sin() * (1.0 + i as f32)).collect();
            for format in [TileFormat::Bfp8, TileFormat::Bfp4] {
                let tiles = format.tilize_transposed(&matrix, cols);
                let expected = format.untilize(&tiles, cols, rows);
                let mut got = matrix.clone();
                round(&mut got, cols, format.bfp().expect("a block format"));
                for (i, value) in got.iter().enumerate() {
                    let want = expected[i % cols * rows + i / cols];
                    assert_eq!(*value, want, "[{rows}, {cols}] at {i}");
                    assert_eq!(half::bf16::from_f32(want).to_f32(), want, "BF16 holds it");
                }
            }
        }
    }

    #[test]
    fn the_policies_are_the_published_ones() {
        let formats = |name| [BfpPolicy::Bfp8, BfpPolicy::Bfp4].map(|policy| policy.format(name));
        let (eight, four) = (Some(TileFormat::Bfp8), Some(TileFormat::Bfp4));
        assert_eq!(formats("blk.3.ffn_up.weight"), [eight, four]);
        assert_eq!(formats("blk.3.attn_gate.weight"), [eight, eight]);
        assert_eq!(formats("output.weight"), [eight, eight]);
        assert_eq!(formats("fc.weight"), [eight, eight]);
        for kept in ["token_embd.weight", "blk.3.attn_norm.weight", "output_norm.weight"] {
            assert_eq!(formats(kept), [None, None], "{kept}");
        }
    }
}
