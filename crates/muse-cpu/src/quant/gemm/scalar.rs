//! The definition of the panel gemm.

use crate::quant::activations::Int8Row;
use crate::quant::layout::{
    GroupParam, PackedLayout, STEP, activation_layout, has_integer_minimums, integer_of,
};
use crate::quant::panel::{PANEL_ROWS, Quants};

/// See [`super::PanelGemm`].
pub(in crate::quant) fn gemm<L: PackedLayout>(
    panel: &[u8],
    k: usize,
    x: &[i32],
    _next: &[u8],
    out: &mut [[f32; PANEL_ROWS]],
) {
    let rows = out.len();
    for (r, out) in out.iter_mut().enumerate() {
        let row = Int8Row::new(x, (r, rows), k, activation_layout::<L>(), L::GROUP);
        for (b, block) in panel.chunks_exact(L::BYTES).enumerate() {
            let part = if L::INTEGER_SCALES {
                integer_scales::<L>(block, &row, b)
            } else {
                float_scales::<L>(block, &row, b)
            };
            let scale = row.scale(b);
            for (out, part) in out.iter_mut().zip(part) {
                *out = part.mul_add(scale, *out);
            }
        }
    }
}

/// The products of block `b` with float scales, group after group.
fn float_scales<L: PackedLayout>(block: &[u8], row: &Int8Row<'_>, b: usize) -> [f32; PANEL_ROWS] {
    let mut part = minimums::<L>(block, row, b);
    for step in 0..L::BLOCK / STEP {
        let (quants, scales) = (L::quants(block, step), L::scales(block, step));
        for (i, scales) in scales.iter().take(STEP / L::GROUP).enumerate() {
            let group = (b * L::BLOCK + step * STEP) / L::GROUP + i;
            let sums = sums::<L>(&quants, row, group);
            for ((part, sum), scale) in part.iter_mut().zip(sums).zip(scales) {
                *part = (sum as f32).mul_add(*scale, *part);
            }
        }
    }
    part
}

/// The products of block `b` with integer scales.
fn integer_scales<L: PackedLayout>(block: &[u8], row: &Int8Row<'_>, b: usize) -> [f32; PANEL_ROWS] {
    let mut products = [0; PANEL_ROWS];
    for i in 0..L::BLOCK / L::GROUP {
        let quants = L::quants(block, i * L::GROUP / STEP);
        let sums = sums::<L>(&quants, row, b * (L::BLOCK / L::GROUP) + i);
        let scales = L::integer_pair(block, GroupParam::Scale, i / 2);
        for ((product, sum), scale) in products.iter_mut().zip(sums).zip(scales) {
            *product += integer_of(scale, i) * sum;
        }
    }
    let (part, factor) = (minimums::<L>(block, row, b), L::block_factor(block, GroupParam::Scale));
    std::array::from_fn(|lane| (products[lane] as f32).mul_add(factor[lane], part[lane]))
}

/// Minus the minimums of block `b` times the sums of the activations.
fn minimums<L: PackedLayout>(block: &[u8], row: &Int8Row<'_>, b: usize) -> [f32; PANEL_ROWS] {
    if !L::HAS_MINIMUMS {
        return [0.0; PANEL_ROWS];
    }
    let groups = L::BLOCK / L::GROUP;
    let mut sums = [0; PANEL_ROWS];
    for i in 0..groups {
        let integers = match has_integer_minimums::<L>() {
            true => {
                L::integer_pair(block, GroupParam::Minimum, i / 2).map(|pair| integer_of(pair, i))
            }
            false => [1; PANEL_ROWS],
        };
        for (sum, integer) in sums.iter_mut().zip(integers) {
            *sum += integer * row.negated_sum(b * groups + i);
        }
    }
    let factor = L::block_factor(block, GroupParam::Minimum);
    std::array::from_fn(|lane| sums[lane] as f32 * factor[lane])
}

/// The sums of products of a group; `quants` are those of the step that contains it.
fn sums<L: PackedLayout>(quants: &Quants, row: &Int8Row<'_>, group: usize) -> [i32; PANEL_ROWS] {
    let first = group * L::GROUP / 4;
    std::array::from_fn(|lane| {
        let mut sum = L::OFFSET * row.negated_sum(group);
        for quad in first..first + L::GROUP / 4 {
            for (j, x) in row.quants(quad).to_le_bytes().into_iter().enumerate() {
                sum += i32::from(quants[quad % 8][4 * lane + j]) * i32::from(x as i8);
            }
        }
        sum
    })
}
