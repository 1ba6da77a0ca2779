//! IEEE single precision, little-endian.

pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (value, raw) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *value = f32::from_le_bytes(*raw);
    }
}
