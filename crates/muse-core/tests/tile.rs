//! BFP tiles against the bytes and values of Tenstorrent's host packer, bit for bit.

use std::fs;

use muse_core::quant::tile::{Bfp, TileFormat, VALUES};
use muse_testkit::golden_dir;

/// Output of the packer in one format.
struct Golden {
    format: TileFormat,
    bfp: Bfp,
    /// Input matrices, row by row.
    matrices: Vec<f32>,
    tiles: Vec<u8>,
    /// The tiles decoded, row by row.
    values: Vec<f32>,
}

fn goldens() -> [Golden; 2] {
    let folder = golden_dir().join("tile");
    let bytes = |name: String| fs::read(folder.join(name)).expect("golden tiles");
    let floats = |name: String| {
        let raw = bytes(name);
        raw.as_chunks::<4>().0.iter().map(|raw| f32::from_le_bytes(*raw)).collect()
    };
    [(TileFormat::Bfp8, Bfp::EIGHT), (TileFormat::Bfp4, Bfp::FOUR)].map(|(format, bfp)| {
        let name = format.name().to_lowercase();
        let (tiles, values) = (bytes(format!("{name}.bin")), floats(format!("{name}.f32")));
        Golden { format, bfp, matrices: floats("tiles.f32".to_owned()), tiles, values }
    })
}

#[test]
fn encoding_matches_the_packer() {
    for Golden { format, matrices, tiles, .. } in goldens() {
        assert_eq!(matrices.len(), 10 * VALUES);
        let got = format.tilize(&matrices, 32);
        assert_eq!(got.len(), tiles.len());
        for (at, (got, want)) in got.iter().zip(&tiles).enumerate() {
            let (tile, byte) = (at / format.bytes(), at % format.bytes());
            assert_eq!(got, want, "{} tile {tile}, byte {byte}", format.name());
        }
    }
}

#[test]
fn decoding_matches_the_packer() {
    for Golden { format, tiles, values, .. } in goldens() {
        let got = format.untilize(&tiles, values.len() / 32, 32);
        for (at, (got, want)) in got.iter().zip(&values).enumerate() {
            let (tile, value) = (at / VALUES, at % VALUES);
            let name = format.name();
            assert_eq!(got.to_bits(), want.to_bits(), "{name} tile {tile}, value {value}: {got:e}");
        }
    }
}

#[test]
fn rounding_equals_encoding_and_decoding() {
    for Golden { format, bfp, mut matrices, values, .. } in goldens() {
        matrices.as_chunks_mut().0.iter_mut().for_each(|group| bfp.round(group));
        assert_eq!(matrices, values, "{}", format.name());
    }
}
