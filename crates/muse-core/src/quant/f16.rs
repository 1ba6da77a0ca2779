//! IEEE half precision, little-endian.

pub(super) fn decode(bytes: &[u8], out: &mut [f32]) {
    for (value, raw) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *value = half::f16::from_le_bytes(*raw).to_f32();
    }
}
