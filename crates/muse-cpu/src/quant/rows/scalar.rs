//! The definition.

use crate::quant::activations::Row;
use crate::quant::panel::Numbers;
use crate::quant::{Of, PANEL, Packing, STEP, form, multiple, several};

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
        let row = Row::of(tile, (r, rows), k, form::<P>(), P::GROUP);
        for (b, block) in panel.chunks_exact(P::BYTES).enumerate() {
            let part =
                if P::WHOLE { whole::<P>(block, &row, b) } else { groups::<P>(block, &row, b) };
            let scale = row.scale(b);
            for (out, part) in out.iter_mut().zip(part) {
                *out = part.mul_add(scale, *out);
            }
        }
    }
}

/// The products of block `b`, group after group.
fn groups<P: Packing>(block: &[u8], row: &Row<'_>, b: usize) -> [f32; PANEL] {
    let mut part = minimums::<P>(block, row, b);
    for step in 0..P::BLOCK / STEP {
        let (numbers, scales) = (P::numbers(block, step), P::scales(block, step));
        for (i, scales) in scales.iter().take(STEP / P::GROUP).enumerate() {
            let group = (b * P::BLOCK + step * STEP) / P::GROUP + i;
            let sums = sums::<P>(&numbers, row, group);
            for ((part, sum), scale) in part.iter_mut().zip(sums).zip(scales) {
                *part = (sum as f32).mul_add(*scale, *part);
            }
        }
    }
    part
}

/// The products of block `b`, whose scales are whole.
fn whole<P: Packing>(block: &[u8], row: &Row<'_>, b: usize) -> [f32; PANEL] {
    let mut products = [0; PANEL];
    for i in 0..P::BLOCK / P::GROUP {
        let numbers = P::numbers(block, i * P::GROUP / STEP);
        let sums = sums::<P>(&numbers, row, b * (P::BLOCK / P::GROUP) + i);
        let scales = P::pair(block, Of::Scales, i / 2);
        for ((product, sum), scale) in products.iter_mut().zip(sums).zip(scales) {
            *product += multiple(scale, i) * sum;
        }
    }
    let (part, unit) = (minimums::<P>(block, row, b), P::unit(block, Of::Scales));
    std::array::from_fn(|lane| (products[lane] as f32).mul_add(unit[lane], part[lane]))
}

/// The minimums of block `b`, if there are any.
fn minimums<P: Packing>(block: &[u8], row: &Row<'_>, b: usize) -> [f32; PANEL] {
    if !P::MINIMUMS {
        return [0.0; PANEL];
    }
    let groups = P::BLOCK / P::GROUP;
    let mut sums = [0; PANEL];
    for i in 0..groups {
        let multiples = match several::<P>() {
            true => P::pair(block, Of::Minimums, i / 2).map(|pair| multiple(pair, i)),
            false => [1; PANEL],
        };
        for (sum, multiple) in sums.iter_mut().zip(multiples) {
            *sum += multiple * row.sum(b * groups + i);
        }
    }
    let unit = P::unit(block, Of::Minimums);
    std::array::from_fn(|lane| sums[lane] as f32 * unit[lane])
}

/// The products of a group, of which the step's numbers are given.
fn sums<P: Packing>(numbers: &Numbers, row: &Row<'_>, group: usize) -> [i32; PANEL] {
    let first = group * P::GROUP / 4;
    std::array::from_fn(|lane| {
        let mut sum = P::OFFSET * row.sum(group);
        for quad in first..first + P::GROUP / 4 {
            for (j, x) in row.numbers(quad).to_le_bytes().into_iter().enumerate() {
                sum += i32::from(numbers[quad % 8][4 * lane + j]) * i32::from(x as i8);
            }
        }
        sum
    })
}
