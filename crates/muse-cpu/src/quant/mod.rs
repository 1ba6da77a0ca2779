//! Weights repacked at load so that integer dot products read them straight from memory.
//!
//! 16 rows lie side by side in a panel: a 64-byte vector holds 4 consecutive numbers of each, so
//! that one instruction multiplies them with 4 activations. Numbers are unsigned; what was added
//! to make them so is taken off again through the sums of the activations. Activations are bytes
//! with one scale a block, the same for one row and for thousands. Inside a group of numbers that
//! share a scale the arithmetic is exact, and where scales are multiples of a unit of the block so is
//! that of a block; groups and blocks are added in the order of K, one chain for each row and column:
//! all instruction sets give the same bits for any batch.
//!
//! A format is added with a folder that implements [`Packing`] and a line of [`KINDS`].

mod activations;
mod bf16;
// Only there are vectors wide enough to gain.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod expanded;
mod iq2_xxs;
mod iq4_nl;
mod iq4_xs;
mod levels;
mod panel;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod rows;

use muse_core::Result;
use muse_core::contract::WeightView;
use muse_core::quant::{Format, iq1_m, iq1_s, iq2_s, iq2_xs, iq3_s, iq3_xxs, mxfp4, q2_k, q3_k};

pub(crate) use activations::{Activations, tile_rows};
pub(crate) use expanded::bytes as expanded_bytes;
pub(crate) use rows::{MOST_ROWS, Rows};

use levels::Levels;
use panel::Numbers;
#[cfg(not(target_arch = "x86_64"))]
use rows::Vectors;
#[cfg(target_arch = "x86_64")]
use rows::avx512::Vectors;

use crate::aligned::Aligned;
use crate::kernels::Isa;
use crate::kernels::quantize::{Form, centre};
use crate::pool::Pool;
use crate::split::chunks;

/// Weight rows of a panel.
pub(crate) const PANEL: usize = 16;
/// Numbers of a row that are unpacked at a time.
const STEP: usize = 32;

/// How weights of a format lie in memory once repacked.
trait Packing: Vectors + 'static {
    /// The format of the file.
    const FORMAT: Format;
    /// Values of a row that share an activation scale, those of the file's block: 32 or 256.
    const BLOCK: usize = Self::FORMAT.block_values();
    /// Values of a row that share a scale: 16 or 32.
    const GROUP: usize;
    /// What was added to the numbers to make them unsigned: 0 or a power of two.
    const OFFSET: i32;
    /// Whether the scales of a block are multiples of a unit, and numbers less the offset so small,
    /// up to [`centre`] in size, that the products of a group fit 16 bits.
    const WHOLE: bool = false;
    /// Whether groups have a minimum that is taken off.
    const MINIMUMS: bool = false;
    /// Bytes of a packed block of 16 rows.
    const BYTES: usize;
    /// Whether unpacking once for many rows pays, as measured: where a scale belongs to 32 values
    /// and numbers lie in one piece, it does not.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    const EXPANDS: bool = Self::BLOCK > 32;

    /// Puts a block of the file into lane `lane` of a packed block that began as zeros.
    fn pack(block: &[u8], lane: usize, out: &mut [u8]);

    /// The definition: numbers of values `32 step ..` of a packed block.
    fn numbers(block: &[u8], step: usize) -> Numbers;

    /// The definition: scales of the same values, of the two halves or in the first of the whole;
    /// asked for unless they are [`Self::WHOLE`].
    fn scales(_block: &[u8], _step: usize) -> [[f32; PANEL]; 2] {
        unreachable!("{} has whole scales", Self::FORMAT)
    }

    /// The definition: multiples of groups `2 pair` and `2 pair + 1`, low and high; asked for where
    /// scales are [`Self::WHOLE`], and where there are several minimums.
    fn pair(_block: &[u8], _of: Of, _pair: usize) -> [u32; PANEL] {
        unreachable!("{} has no whole scales", Self::FORMAT)
    }

    /// The definition: what multiples count in; where a block is one group, its minimum.
    fn unit(_block: &[u8], _of: Of) -> [f32; PANEL] {
        unreachable!("{} has no units", Self::FORMAT)
    }
}

/// What groups have: `(number - OFFSET) · scale - minimum`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Scales,
    Minimums,
}

/// The most pairs of groups of a block.
const MOST_PAIRS: usize = 256 / 16 / 2;

/// The multiple of a group of a pair.
fn multiple(pair: u32, group: usize) -> i32 {
    i32::from((pair >> (16 * (group % 2))) as i16)
}

/// What activations become for a packing.
const fn form<P: Packing>() -> Form {
    Form { block: P::BLOCK, whole: P::WHOLE || several::<P>() }
}

/// Whether a block has several minimums. They are multiples of a unit then.
const fn several<P: Packing>() -> bool {
    P::MINIMUMS && P::BLOCK > P::GROUP
}

/// A packing as data.
pub(crate) struct Kind {
    /// The format of the file.
    format: Format,
    /// What activations become before they meet these weights.
    pub(crate) activations: Activations,
    panel_bytes: fn(k: usize) -> usize,
    /// Puts a row of the file into a lane of a panel that began as zeros.
    pack_row: fn(row: &[u8], lane: usize, panel: &mut [u8]),
    /// Decodes a lane of a panel.
    decode_row: fn(panel: &[u8], lane: usize, out: &mut [f32]),
    /// The loops over a panel; none where decoding the file's bytes in `f32` is faster.
    kernels: fn(Isa) -> Option<Kernels>,
}

/// The loops over a panel for one packing and instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    /// Multiplies packed panels.
    pub(crate) packed: Rows,
    /// Unpacks a panel for many rows; nothing where reading it packed is as fast.
    pub(crate) expand: Option<(expanded::Expand, Rows)>,
}

static KINDS: [Kind; 21] = [
    bf16::KIND,
    kind::<q8_0::Q8_0>(),
    kind::<q4_0::Q4_0>(),
    kind::<q4_1::Q4_1>(),
    kind::<q5_0::Q5_0>(),
    kind::<q5_1::Q5_1>(),
    kind::<q4_k::Q4K>(),
    kind::<q5_k::Q5K>(),
    kind::<q6_k::Q6K>(),
    kind::<iq2_xxs::Iq2Xxs>(),
    kind::<iq4_nl::Iq4Nl>(),
    kind::<iq4_xs::Iq4Xs>(),
    kind::<Levels<q2_k::Q2K>>(),
    kind::<Levels<q3_k::Q3K>>(),
    kind::<Levels<iq1_s::Iq1S>>(),
    kind::<Levels<iq1_m::Iq1M>>(),
    kind::<Levels<iq2_xs::Iq2Xs>>(),
    kind::<Levels<iq2_s::Iq2S>>(),
    kind::<Levels<iq3_xxs::Iq3Xxs>>(),
    kind::<Levels<iq3_s::Iq3S>>(),
    kind::<Levels<mxfp4::Mxfp4>>(),
];

const fn kind<P: Packing>() -> Kind {
    // Loops over K read activations unchecked, as many as these promise.
    assert!(P::BLOCK.is_multiple_of(STEP) && matches!(P::GROUP, 16 | 32), "whole groups");
    assert!(P::BYTES.is_multiple_of(P::BLOCK / STEP), "steps of equal size");
    assert!(P::BLOCK == 256 || !form::<P>().whole, "as many sums as whole ones have");
    assert!(!P::WHOLE || P::OFFSET == 0 || P::OFFSET == centre(P::GROUP), "sums with the offset");
    Kind {
        format: P::FORMAT,
        activations: Activations::Int8(form::<P>()),
        panel_bytes: |k| k / P::BLOCK * P::BYTES,
        pack_row: pack_row::<P>,
        decode_row: decode_row::<P>,
        kernels: rows::kernels::<P>,
    }
}

impl Kind {
    /// The packing of a format and its kernels, if it has one that pays on this CPU.
    pub(crate) fn of(format: Format, isa: Isa) -> Option<(&'static Self, Kernels)> {
        let kind = KINDS.iter().find(|kind| kind.format == format)?;
        (kind.kernels)(isa).map(|kernels| (kind, kernels))
    }

    /// Bytes of a panel of rows of `k` values.
    pub(crate) fn panel_bytes(&self, k: usize) -> usize {
        (self.panel_bytes)(k)
    }

    /// Bytes of a repacked matrix.
    pub(crate) fn bytes_for(&self, rows: usize, cols: usize) -> usize {
        rows.div_ceil(PANEL) * self.panel_bytes(cols)
    }

    /// Repacks a matrix; rows beyond the last one, up to a whole panel, are zero.
    pub(crate) fn repack(&self, view: &WeightView<'_>, pool: &Pool) -> Result<Aligned<u8>> {
        let panel = self.panel_bytes(view.cols);
        let mut packed = Aligned::zeroed(self.bytes_for(view.rows, view.cols))?;
        let row_bytes = self.format.bytes_for(view.cols);
        chunks(pool, &mut packed, panel, |index, panel| {
            let rows = view.bytes[index * PANEL * row_bytes..].chunks_exact(row_bytes);
            for (lane, row) in rows.take(PANEL).enumerate() {
                (self.pack_row)(row, lane, panel);
            }
        });
        Ok(packed)
    }

    /// Decodes row `row` of a matrix.
    pub(crate) fn decode_row(&self, packed: &[u8], row: usize, out: &mut [f32]) {
        let panel = self.panel_bytes(out.len());
        let packed = &packed[row / PANEL * panel..][..panel];
        (self.decode_row)(packed, row % PANEL, out);
    }
}

fn pack_row<P: Packing>(row: &[u8], lane: usize, panel: &mut [u8]) {
    let blocks = row.chunks_exact(P::FORMAT.block_bytes());
    for (out, block) in panel.chunks_exact_mut(P::BYTES).zip(blocks) {
        P::pack(block, lane, out);
    }
}

fn decode_row<P: Packing>(panel: &[u8], lane: usize, out: &mut [f32]) {
    let blocks = panel.chunks_exact(P::BYTES);
    for (block, out) in blocks.zip(out.chunks_exact_mut(P::BLOCK)) {
        let value = |of: Of, group: usize| {
            let number = match P::BLOCK == P::GROUP {
                true => 1,
                false => multiple(P::pair(block, of, group / 2)[lane], group),
            };
            P::unit(block, of)[lane] * number as f32
        };
        for (group, out) in out.chunks_exact_mut(P::GROUP).enumerate() {
            let (step, part) = (group * P::GROUP / STEP, group * P::GROUP % STEP);
            let numbers = P::numbers(block, step);
            let scale = match P::WHOLE {
                true => value(Of::Scales, group),
                false => P::scales(block, step)[part / P::GROUP][lane],
            };
            let minimum = if P::MINIMUMS { Some(value(Of::Minimums, group)) } else { None };
            for (i, out) in out.iter_mut().enumerate() {
                let i = part + i;
                let number = i32::from(numbers[i / 4][4 * lane + i % 4]) - P::OFFSET;
                *out = scale * number as f32;
                if let Some(minimum) = minimum {
                    *out -= minimum;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
