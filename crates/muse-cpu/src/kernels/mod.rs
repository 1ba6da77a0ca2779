//! The inner loops, one module per operation. A module has the type of the kernel, `select` for an
//! instruction set and `variants` for all that this CPU can run, the definition first.
//!
//! Most kernels are plain loops that are compiled once per instruction set and have the same bits
//! in all of them. [`gemm`] and [`weighted_v_sum`], which read weights and the KV cache as they are
//! stored, are written in vector primitives: a folder with the scalar definition and one file per
//! instruction set. [`attention_bf16`] exists only for CPUs with BF16 dot products.

mod isa;
mod math;
mod per_isa;
mod per_layout;
pub(crate) mod simd;

pub mod attention_bf16;
pub mod elementwise;
pub mod gelu;
pub mod gemm;
pub mod layer_norm;
pub mod quantize;
pub mod read_memory;
pub mod rms_norm;
pub mod rope;
pub mod rope_2d;
pub mod round_bf16;
pub mod softmax;
pub mod weighted_v_sum;

pub use isa::{Isa, Level};

use crate::layout::Layout;

/// The kernels of one instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernels {
    gemm: [gemm::Gemm; 4],
    weighted_v_sum: [weighted_v_sum::WeightedVSum; 4],
    pub(crate) attention_bf16: Option<attention_bf16::AttentionBf16>,
    pub(crate) rms_norm: rms_norm::RmsNorm,
    pub(crate) layer_norm: layer_norm::LayerNorm,
    pub(crate) gelu: gelu::Gelu,
    pub(crate) rope_2d: rope_2d::Rope2d,
    pub(crate) quantize: quantize::Quantize,
    pub(crate) round_bf16: round_bf16::RoundBf16,
    pub(crate) interleave_bf16: round_bf16::InterleaveBf16,
    pub(crate) rope: rope::Rope,
    pub(crate) online_softmax: softmax::OnlineSoftmax,
    pub(crate) sigmoid_mul: elementwise::Binary,
    pub(crate) silu_mul: elementwise::Binary,
    pub(crate) add: elementwise::Binary,
    pub(crate) softcap: elementwise::Softcap,
}

impl Kernels {
    pub(crate) fn new(isa: Isa) -> Self {
        Self {
            gemm: Layout::ALL.map(|layout| gemm::select(isa, layout)),
            weighted_v_sum: Layout::ALL.map(|layout| weighted_v_sum::select(isa, layout)),
            attention_bf16: attention_bf16::select(isa),
            rms_norm: rms_norm::select(isa),
            layer_norm: layer_norm::select(isa),
            gelu: gelu::select(isa),
            rope_2d: rope_2d::select(isa),
            quantize: quantize::select(isa),
            round_bf16: round_bf16::select(isa),
            interleave_bf16: round_bf16::interleave::select(isa),
            rope: rope::select(isa),
            online_softmax: softmax::select(isa),
            sigmoid_mul: elementwise::sigmoid_mul::select(isa),
            silu_mul: elementwise::silu_mul::select(isa),
            add: elementwise::add::select(isa),
            softcap: elementwise::softcap::select(isa),
        }
    }

    pub(crate) fn gemm(&self, layout: Layout) -> gemm::Gemm {
        self.gemm[layout as usize]
    }

    pub(crate) fn weighted_v_sum(&self, layout: Layout) -> weighted_v_sum::WeightedVSum {
        self.weighted_v_sum[layout as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs every variant on slices of many lengths and compares the bits with the first variant's.
    fn same_bits<K>(
        variants: impl Iterator<Item = (&'static str, K)>,
        run: impl Fn(&K, &mut [f32], &[f32]),
    ) {
        let variants: Vec<_> = variants.collect();
        for n in (1..=70).chain([256, 1000]) {
            let (x, _) = Layout::F32.test_values(n, 1);
            let (y, _) = Layout::F32.test_values(n, 2);
            let bits = |kernel| {
                let mut x: Vec<f32> = x.iter().map(|x| 20.0 * x).collect();
                run(kernel, &mut x, &y);
                assert!(x.iter().all(|x| x.is_finite()), "{x:?}");
                x.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
            };
            let want = bits(&variants[0].1);
            for (name, kernel) in &variants[1..] {
                assert_eq!(bits(kernel), want, "{name}, {n} values");
            }
        }
    }

    #[test]
    fn plain_loops_have_the_same_bits_in_all_instruction_sets() {
        let binary = |kernel: &elementwise::Binary, x: &mut [f32], y: &[f32]| kernel(x, y);
        same_bits(elementwise::sigmoid_mul::variants(), binary);
        same_bits(elementwise::silu_mul::variants(), binary);
        same_bits(elementwise::add::variants(), binary);
        same_bits(elementwise::softcap::variants(), |kernel, x, _| kernel(x, 0.7, 2.0));
        same_bits(elementwise::softcap::variants(), |kernel, x, _| kernel(x, 0.7, f32::INFINITY));
        same_bits(rms_norm::variants(), |kernel, x, y| kernel(x, y, 1e-5));
        same_bits(rms_norm::variants(), |kernel, x, _| kernel(x, &[], 1e-5));
        same_bits(layer_norm::variants(), |kernel, x, y| kernel(x, y, y, 1e-5));
        same_bits(gelu::variants(), |kernel, x, y| kernel(x, y));
        same_bits(gelu::variants(), |kernel, x, _| kernel(x, &[]));
        same_bits(rope_2d::variants(), |kernel, x, y| kernel(x, [77.0, 5.0], &y[..y.len() / 4]));
        same_bits(rope::variants(), |kernel, x, y| kernel(x, 77.0, &y[..y.len() / 2]));
        same_bits(softmax::variants(), |kernel, x, _| {
            let mut state = softmax::SoftmaxState { max: 3.0, sum: 1.5 };
            let block = x.len().min(muse_core::contract::KV_BLOCK_SIZE);
            let rescale = kernel(&mut x[..block], 0.25, &mut state);
            x[0] += rescale + state.sum + state.max;
        });
    }
}
