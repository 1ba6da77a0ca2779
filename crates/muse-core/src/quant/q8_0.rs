//! Q8_0: a half-precision scale and 32 signed bytes; `value = scale · byte`.

/// Values of a quant block.
pub const VALUES: usize = 32;
/// Bytes of a quant block: the scale, then the quants.
pub const BYTES: usize = 34;

/// Decodes whole quant blocks.
pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (values, block) in out.chunks_exact_mut(VALUES).zip(bytes.as_chunks::<BYTES>().0) {
        let scale = half::f16::from_le_bytes([block[0], block[1]]).to_f32();
        for (value, &quant) in values.iter_mut().zip(&block[2..]) {
            *value = scale * f32::from(quant as i8);
        }
    }
}

/// Encodes one quant block: the scale is `max |x| / 127`, rounded to half precision. Values are
/// divided by the unrounded scale and rounded half away from zero, as llama.cpp's reference
/// quantizer does.
pub fn encode(values: &[f32; VALUES], block: &mut [u8; BYTES]) {
    let largest = values.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
    let scale = largest / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    block[..2].copy_from_slice(&half::f16::from_f32(scale).to_le_bytes());
    for (quant, x) in block[2..].iter_mut().zip(values) {
        *quant = (x * inverse).round() as i8 as u8;
    }
}
