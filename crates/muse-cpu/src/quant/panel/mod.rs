//! The order of quants in a panel: writes the quants of a row into a lane of the panel's vectors
//! and reads them back.

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512;

/// Weight rows of a panel; each is a lane of its vectors.
pub(crate) const PANEL_ROWS: usize = 16;
/// Bytes of a vector of a panel: 4 bytes of each row.
pub(super) const VECTOR_BYTES: usize = 4 * PANEL_ROWS;

/// The quants of a step of 32 values: 8 vectors of 4 quants of each row.
pub(super) type Quants = [[u8; 64]; 8];

/// Each four consecutive quants as a word, the first in the lowest bits.
fn quads(quants: &[u8; 32]) -> [u32; 8] {
    let fours = quants.as_chunks::<4>().0;
    std::array::from_fn(|q| u32::from_le_bytes(fours[q]))
}

/// Writes 32 quants of eight bits into 8 vectors.
pub(super) fn put_bytes(out: &mut [u8], lane: usize, quants: &[u8; 32]) {
    for (q, quad) in quads(quants).into_iter().enumerate() {
        put_word(&mut out[64 * q..], lane, quad);
    }
}

/// Writes 32 quants of four bits into 4 vectors: vector `i` holds quad `i` in its low nibbles and
/// quad `i + 4` in its high nibbles.
pub(super) fn put_nibbles(out: &mut [u8], lane: usize, quants: &[u8; 32]) {
    let quads = quads(quants).map(|quad| quad & 0x0f0f_0f0f);
    for i in 0..4 {
        put_word(&mut out[64 * i..], lane, quads[i] | quads[i + 4] << 4);
    }
}

/// Writes 32 quants of two bits into 2 vectors: vector `i` holds quads `4 i ..`, from the lowest
/// bits up.
pub(super) fn put_two_bits(out: &mut [u8], lane: usize, quants: &[u8; 32]) {
    let quads = quads(quants).map(|quad| quad & 0x0303_0303);
    for (i, [a, b, c, d]) in quads.as_chunks::<4>().0.iter().enumerate() {
        put_word(&mut out[64 * i..], lane, a | b << 2 | c << 4 | d << 6);
    }
}

/// Writes 32 bits into 8 masks: bit `i` of mask `q` belongs to byte `i` of vector `q`.
pub(super) fn put_bits(out: &mut [u8], lane: usize, quants: &[u8; 32]) {
    for (q, quad) in quads(quants).into_iter().enumerate() {
        // The product moves the lowest bits of the four bytes next to each other.
        let four = (quad & 0x0101_0101).wrapping_mul(0x0102_0408) >> 24;
        out[8 * q + lane / 2] |= (four << (4 * (lane % 2))) as u8;
    }
}

/// Writes a half-precision number, or any two bytes, for a row.
pub(super) fn put_half(out: &mut [u8], lane: usize, half: &[u8]) {
    out[2 * lane..2 * lane + 2].copy_from_slice(&half[..2]);
}

/// Sets bits of the word of a row.
pub(super) fn put_word(out: &mut [u8], lane: usize, bits: u32) {
    let word = &mut out.as_chunks_mut::<4>().0[lane];
    *word = (u32::from_le_bytes(*word) | bits).to_le_bytes();
}

/// Reads what [`put_bytes`] wrote.
#[inline(always)]
pub(super) fn bytes(from: &[u8]) -> Quants {
    let from: &[u8; 512] = from[..512].try_into().expect("8 vectors");
    let mut out = [[0; 64]; 8];
    for (out, from) in out.iter_mut().zip(from.as_chunks::<64>().0) {
        *out = *from;
    }
    out
}

/// Reads what [`put_nibbles`] wrote.
#[inline(always)]
pub(super) fn nibbles(from: &[u8]) -> Quants {
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

/// Reads what [`put_two_bits`] wrote.
#[inline(always)]
pub(super) fn two_bits(from: &[u8]) -> Quants {
    let from: &[u8; 128] = from[..128].try_into().expect("2 vectors");
    let mut out = [[0; 64]; 8];
    for (q, out) in out.iter_mut().enumerate() {
        for (j, out) in out.iter_mut().enumerate() {
            *out = from[q / 4 * 64 + j] >> (q % 4 * 2) & 3;
        }
    }
    out
}

/// Reads what [`put_bits`] wrote.
#[inline(always)]
pub(super) fn bits(from: &[u8]) -> Quants {
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
pub(super) fn halves(from: &[u8]) -> [f32; PANEL_ROWS] {
    let from: &[u8; 2 * PANEL_ROWS] = from[..2 * PANEL_ROWS].try_into().expect("16 numbers");
    let halves = from.as_chunks::<2>().0;
    std::array::from_fn(|lane| half::f16::from_le_bytes(halves[lane]).to_f32_const())
}

/// Words of the 16 rows.
#[inline(always)]
pub(super) fn words(from: &[u8]) -> [u32; PANEL_ROWS] {
    let from: &[u8; 4 * PANEL_ROWS] = from[..4 * PANEL_ROWS].try_into().expect("16 words");
    let words = from.as_chunks::<4>().0;
    std::array::from_fn(|lane| u32::from_le_bytes(words[lane]))
}

/// Two signed bytes of each of the 16 rows, sign-extended to the low and the high half of a word.
#[inline(always)]
pub(super) fn byte_pairs(from: &[u8]) -> [u32; PANEL_ROWS] {
    let from: &[u8; 2 * PANEL_ROWS] = from[..2 * PANEL_ROWS].try_into().expect("16 pairs");
    let half = |byte: u8| u32::from(i16::from(byte as i8) as u16);
    let pairs = from.as_chunks::<2>().0;
    std::array::from_fn(|lane| half(pairs[lane][0]) | half(pairs[lane][1]) << 16)
}
