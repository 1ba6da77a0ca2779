//! The definition.

use crate::quant::activations::Row;
use crate::quant::{PANEL, Packing, STEP};

/// See [`super::Rows`].
pub(super) fn rows<P: Packing>(
    panel: &[u8],
    k: usize,
    tile: &[i32],
    _next: &[u8],
    out: &mut [[f32; PANEL]],
) {
    let rows = out.len();
    for (r, out) in out.iter_mut().enumerate() {
        let row = Row::of(tile, (r, rows), k, P::BLOCK, P::GROUP);
        for (b, block) in panel.chunks_exact(P::BYTES).enumerate() {
            let mut part = [0.0; PANEL];
            if P::MINIMUMS {
                let minimums = P::minimums(block);
                let groups = P::BLOCK / P::GROUP;
                part = std::array::from_fn(|lane| {
                    let product = |g| minimums.number(g, lane) * row.sum(b * groups + g);
                    minimums.unit[lane] * (0..groups).map(product).sum::<i32>() as f32
                });
            }
            for step in 0..P::BLOCK / STEP {
                let unpacked = P::unpack(block, step);
                let at = b * P::BLOCK / STEP + step;
                for group in 0..STEP / P::GROUP {
                    let minus = row.sum(at * STEP / P::GROUP + group);
                    let quads = group * P::GROUP / 4..(group + 1) * P::GROUP / 4;
                    for (lane, part) in part.iter_mut().enumerate() {
                        let mut sum = P::OFFSET * minus;
                        for q in quads.clone() {
                            let four = row.numbers(at * 8 + q).to_le_bytes();
                            for (j, x) in four.into_iter().enumerate() {
                                let number = unpacked.numbers[q][4 * lane + j];
                                sum += i32::from(number) * i32::from(x as i8);
                            }
                        }
                        *part = (sum as f32).mul_add(unpacked.scales[group][lane], *part);
                    }
                }
            }
            let scale = row.scale(b);
            for (out, part) in out.iter_mut().zip(part) {
                *out = part.mul_add(scale, *out);
            }
        }
    }
}
