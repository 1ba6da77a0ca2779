//! Where the numbers of a row go in the vectors of a panel, and how they come back.

use super::PANEL;

/// Vectors of a step: 8 of 4 numbers for each row.
pub(super) type Numbers = [[u8; 64]; 8];

/// Four neighbours of a row as a word, the first in the lowest bits.
fn quads(numbers: &[u8; 32]) -> [u32; 8] {
    let fours = numbers.as_chunks::<4>().0;
    std::array::from_fn(|q| u32::from_le_bytes(fours[q]))
}

/// Lays 32 bytes of a row out, 8 vectors.
pub(super) fn put_bytes(out: &mut [u8], lane: usize, numbers: &[u8; 32]) {
    for (q, quad) in quads(numbers).into_iter().enumerate() {
        put_word(&mut out[64 * q..], lane, quad);
    }
}

/// Lays 32 nibbles out, 4 vectors: vector `i` holds quad `i` low and quad `i + 4` high.
pub(super) fn put_nibbles(out: &mut [u8], lane: usize, numbers: &[u8; 32]) {
    let quads = quads(numbers).map(|quad| quad & 0x0f0f_0f0f);
    for i in 0..4 {
        put_word(&mut out[64 * i..], lane, quads[i] | quads[i + 4] << 4);
    }
}

/// Lays 32 numbers of two bits out, 2 vectors: vector `i` holds quads `4 i ..` from the lowest
/// bits up.
pub(super) fn put_pairs(out: &mut [u8], lane: usize, numbers: &[u8; 32]) {
    let quads = quads(numbers).map(|quad| quad & 0x0303_0303);
    for (i, [a, b, c, d]) in quads.as_chunks::<4>().0.iter().enumerate() {
        put_word(&mut out[64 * i..], lane, a | b << 2 | c << 4 | d << 6);
    }
}

/// Lays 32 bits out, 8 masks: bit `i` of mask `q` belongs to byte `i` of vector `q`.
pub(super) fn put_bits(out: &mut [u8], lane: usize, numbers: &[u8; 32]) {
    for (q, quad) in quads(numbers).into_iter().enumerate() {
        // The product brings the lowest bits of the four bytes side by side.
        let four = (quad & 0x0101_0101).wrapping_mul(0x0102_0408) >> 24;
        out[8 * q + lane / 2] |= (four << (4 * (lane % 2))) as u8;
    }
}

/// Stores a half-precision number, or any two bytes, for a row.
pub(super) fn put_half(out: &mut [u8], lane: usize, half: &[u8]) {
    out[2 * lane..2 * lane + 2].copy_from_slice(&half[..2]);
}

/// Adds bits to a row's word.
pub(super) fn put_word(out: &mut [u8], lane: usize, bits: u32) {
    let word = &mut out.as_chunks_mut::<4>().0[lane];
    *word = (u32::from_le_bytes(*word) | bits).to_le_bytes();
}

/// The bytes as they were put.
#[inline(always)]
pub(super) fn bytes(from: &[u8]) -> Numbers {
    let from: &[u8; 512] = from[..512].try_into().expect("8 vectors");
    let mut out = [[0; 64]; 8];
    for (out, from) in out.iter_mut().zip(from.as_chunks::<64>().0) {
        *out = *from;
    }
    out
}

/// The nibbles as they were put.
#[inline(always)]
pub(super) fn nibbles(from: &[u8]) -> Numbers {
    let from: &[u8; 256] = from[..256].try_into().expect("4 vectors");
    let mut out = [[0; 64]; 8];
    for (i, from) in from.as_chunks::<64>().0.iter().enumerate() {
        for (j, byte) in from.iter().enumerate() {
            out[i][j] = byte & 15;
            out[i + 4][j] = byte >> 4;
        }
    }
    out
}

/// The two-bit numbers as they were put.
#[inline(always)]
pub(super) fn pairs(from: &[u8]) -> Numbers {
    let from: &[u8; 128] = from[..128].try_into().expect("2 vectors");
    let mut out = [[0; 64]; 8];
    for (q, out) in out.iter_mut().enumerate() {
        for (j, out) in out.iter_mut().enumerate() {
            *out = from[q / 4 * 64 + j] >> (q % 4 * 2) & 3;
        }
    }
    out
}

/// The bits as they were put.
#[inline(always)]
pub(super) fn bits(from: &[u8]) -> Numbers {
    let from: &[u8; 64] = from[..64].try_into().expect("8 masks");
    let mut out = [[0; 64]; 8];
    for (q, out) in out.iter_mut().enumerate() {
        for (j, out) in out.iter_mut().enumerate() {
            *out = from[q * 8 + j / 8] >> (j % 8) & 1;
        }
    }
    out
}

/// Half-precision numbers of the 16 rows.
#[inline(always)]
pub(super) fn halves(from: &[u8]) -> [f32; PANEL] {
    let from: &[u8; 2 * PANEL] = from[..2 * PANEL].try_into().expect("16 numbers");
    let halves = from.as_chunks::<2>().0;
    std::array::from_fn(|lane| half::f16::from_le_bytes(halves[lane]).to_f32_const())
}

/// Words of the 16 rows.
#[inline(always)]
pub(super) fn words(from: &[u8]) -> [u32; PANEL] {
    let from: &[u8; 4 * PANEL] = from[..4 * PANEL].try_into().expect("16 words");
    let words = from.as_chunks::<4>().0;
    std::array::from_fn(|lane| u32::from_le_bytes(words[lane]))
}

/// Two signed bytes of each of the 16 rows, the first low and the second high in a word.
#[inline(always)]
pub(super) fn byte_pairs(from: &[u8]) -> [u32; PANEL] {
    let from: &[u8; 2 * PANEL] = from[..2 * PANEL].try_into().expect("16 pairs");
    let half = |byte: u8| u32::from(i16::from(byte as i8) as u16);
    let pairs = from.as_chunks::<2>().0;
    std::array::from_fn(|lane| half(pairs[lane][0]) | half(pairs[lane][1]) << 16)
}
