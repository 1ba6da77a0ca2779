//! Every format's decoder against the values of llama.cpp's reference decoder, bit for bit.

use std::fs;

use muse_core::quant::Format;
use muse_testkit::golden_dir;

#[test]
fn decoders_match_the_reference_bit_for_bit() {
    for &format in Format::ALL {
        if matches!(format, Format::F32 | Format::F16 | Format::Bf16) {
            continue; // These have no quant blocks; `float_formats_decode` covers them.
        }
        let file = golden_dir().join("quant").join(format.name().to_lowercase());
        let blocks = fs::read(file.with_extension("bin")).expect("golden blocks");
        let values = fs::read(file.with_extension("f32")).expect("golden values");
        let expected: Vec<f32> =
            values.as_chunks::<4>().0.iter().map(|raw| f32::from_le_bytes(*raw)).collect();
        let count = blocks.len() / format.block_bytes();
        assert!(count >= 19, "{format}: {count} golden blocks");
        let mut got = vec![0.0; count * format.block_values()];
        format.decode(&blocks, &mut got);
        for (i, (got, want)) in got.iter().zip(&expected).enumerate() {
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            let block = i / format.block_values();
            assert!(same, "{format} block {block}, value {i}: {got:e}, expected {want:e}");
        }
        assert_eq!(got.len(), expected.len(), "{format}");
    }
}

#[test]
fn float_formats_decode() {
    let check = |format: Format, bytes: &[u8], want: &[f32]| {
        let mut got = vec![0.0; want.len()];
        format.decode(bytes, &mut got);
        assert_eq!(got, want, "{format}");
    };
    check(Format::F32, &[0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc1], &[1.0, -10.0]);
    check(Format::Bf16, &[0x80, 0x3f, 0x20, 0xc1, 1, 0], &[1.0, -10.0, 9.183_55e-41]);
    check(Format::F16, &[0, 0x3c, 0, 0xc9, 0xff, 0x7b], &[1.0, -10.0, 65504.0]);
}
