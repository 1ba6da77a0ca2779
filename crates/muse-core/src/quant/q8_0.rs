//! Q8_0: 32 signed bytes behind one half-precision scale; `value = scale · byte`.

/// Values of a block.
pub const VALUES: usize = 32;
/// Bytes of a block: the scale, then the values.
pub const BYTES: usize = 34;

/// Decodes whole blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let scale = half::f16::from_le_bytes([block[0], block[1]]).to_f32();
        for (value, &quant) in values.iter_mut().zip(&block[2..]) {
            *value = scale * f32::from(quant as i8);
        }
    }
}

/// Encodes one block: the scale is `max |x| / 127` rounded to half precision, the values are
/// divided by the unrounded scale and rounded half away from zero, as the format's own reference
/// does.
pub fn encode(values: &[f32; VALUES], block: &mut [u8; BYTES]) {
    let largest = values.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let scale = largest / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    block[..2].copy_from_slice(&half::f16::from_f32(scale).to_le_bytes());
    for (quant, x) in block[2..].iter_mut().zip(values) {
        *quant = (x * inverse).round() as i8 as u8;
    }
}
