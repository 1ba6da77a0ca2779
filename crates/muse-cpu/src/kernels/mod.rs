//! The inner loops. `linear` and `mix`, which read stored weights and cache rows, have a folder
//! each with the scalar definition and one file an instruction set, as has `pairs` for the CPUs
//! that multiply pairs of BF16; the others are plain loops, written once and compiled for each
//! instruction set, with the same bits in all of them.

mod isa;
mod math;
mod per_layout;
mod plain;
pub(crate) mod simd;

pub mod elementwise;
pub mod halves;
pub mod linear;
pub mod mix;
pub mod norm;
pub mod pairs;
pub mod quantize;
pub mod read;
pub mod rope;
pub mod softmax;

pub use isa::{Isa, Level};

use crate::layout::Layout;

/// The kernels of one instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernels {
    linear: [linear::Linear; 4],
    mix: [mix::Mix; 4],
    pub(crate) pairs: Option<pairs::Pairs>,
    pub(crate) norm: norm::Norm,
    pub(crate) quantize: quantize::Quantize,
    pub(crate) halves: halves::Halves,
    pub(crate) rotate: rope::Rotate,
    pub(crate) soften: softmax::Soften,
    pub(crate) gate: elementwise::Pairs,
    pub(crate) silu_mul: elementwise::Pairs,
    pub(crate) add: elementwise::Pairs,
    pub(crate) cap: elementwise::Cap,
}

impl Kernels {
    pub(crate) fn new(isa: Isa) -> Self {
        Self {
            linear: Layout::ALL.map(|layout| linear::select(isa, layout)),
            mix: Layout::ALL.map(|layout| mix::select(isa, layout)),
            pairs: pairs::select(isa),
            norm: norm::select(isa),
            quantize: quantize::select(isa),
            halves: halves::select(isa),
            rotate: rope::select(isa),
            soften: softmax::select(isa),
            gate: elementwise::gate::select(isa),
            silu_mul: elementwise::silu_mul::select(isa),
            add: elementwise::add::select(isa),
            cap: elementwise::cap::select(isa),
        }
    }

    pub(crate) fn linear(&self, layout: Layout) -> linear::Linear {
        self.linear[layout as usize]
    }

    pub(crate) fn mix(&self, layout: Layout) -> mix::Mix {
        self.mix[layout as usize]
    }
}

/// Test values in -1 to 1, as they read back from a layout, and their bytes.
#[cfg(test)]
fn stored(layout: Layout, n: usize, seed: u32) -> (Vec<f32>, Vec<u8>) {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..n).map(|_| next()).collect();
    let mut bytes = vec![0; layout.format().bytes_for(n)];
    layout.encode(&values, &mut bytes);
    let mut read = vec![0.0; n];
    layout.format().decode(&bytes, &mut read);
    (read, bytes)
}

/// Plain loops have the same bits in every instruction set, at every length.
#[cfg(test)]
mod tests {
    use super::*;

    /// Runs every variant on slices of every length and compares bits with the first.
    fn same_bits<K>(
        variants: impl Iterator<Item = (&'static str, K)>,
        run: impl Fn(&K, &mut [f32], &[f32]),
    ) {
        let variants: Vec<_> = variants.collect();
        for n in (1..=70).chain([256, 1000]) {
            let (x, _) = stored(Layout::F32, n, 1);
            let (y, _) = stored(Layout::F32, n, 2);
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
    fn plain_loops_have_the_same_bits_everywhere() {
        let pairs = |kernel: &elementwise::Pairs, x: &mut [f32], y: &[f32]| kernel(x, y);
        same_bits(elementwise::gate::variants(), pairs);
        same_bits(elementwise::silu_mul::variants(), pairs);
        same_bits(elementwise::add::variants(), pairs);
        same_bits(elementwise::cap::variants(), |kernel, x, _| kernel(x, 0.7, 2.0));
        same_bits(elementwise::cap::variants(), |kernel, x, _| kernel(x, 0.7, f32::INFINITY));
        same_bits(norm::variants(), |kernel, x, y| kernel(x, y, 1e-5));
        same_bits(norm::variants(), |kernel, x, _| kernel(x, &[], 1e-5));
        same_bits(rope::variants(), |kernel, x, y| kernel(x, 77.0, &y[..y.len() / 2]));
        same_bits(softmax::variants(), |kernel, x, _| {
            let mut running = softmax::Running { largest: 3.0, total: 1.5 };
            let page = x.len().min(muse_core::contract::KV_BLOCK_SIZE);
            let keep = kernel(&mut x[..page], 0.25, &mut running);
            x[0] += keep + running.total + running.largest;
        });
    }
}
