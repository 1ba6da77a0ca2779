//! Pictures for tests of the vision tower: patches from pixels, values on the way through the tower.

mod reference;

use std::collections::BTreeMap;

use muse_core::Result;
use muse_core::contract::{ContentHash, Patches, VisionOps};
use muse_core::hash::hash64;
use muse_vision::{Intermediate, Tower};

pub use reference::{Mutation, ReferenceTower};

/// Side of a patch in pixels.
const SIDE: usize = 14;
/// Values of a frame of a patch.
const FRAME: usize = 3 * SIDE * SIDE;

/// A picture of whole patches: pixels `[height, width, 3]`.
#[derive(Clone, Debug)]
pub struct Pixels {
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
    pub width: usize,
    /// Red, green and blue of every pixel.
    pub values: Vec<u8>,
}

impl Pixels {
    /// Ramps, a texture and a red rectangle: the pictures of which llama.cpp's rows are known.
    pub fn pattern(height: usize, width: usize) -> Self {
        let mut values = Vec::with_capacity(height * width * 3);
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            let inside =
                (height / 4..height / 2).contains(&y) && (width / 3..width / 2).contains(&x);
            let texture = (x * x + 3 * y * y + 5 * x * y) * 7 / 11 % 256;
            let ramp = |at: usize, of: usize| (at * 255 / (of - 1).max(1)) as u8;
            values.extend(match inside {
                true => [220, 30, 30],
                false => [ramp(x, width), ramp(y, height), texture as u8],
            });
        }
        Self { height, width, values }
    }

    /// The patches of a picture: both frames are the picture.
    pub fn patches(&self) -> Patches {
        let (grid_h, grid_w) = (self.height / SIDE, self.width / SIDE);
        let mut values = Vec::with_capacity(grid_h * grid_w * 2 * FRAME);
        for patch in 0..grid_h * grid_w {
            let (top, left) = (patch / grid_w * SIDE, patch % grid_w * SIDE);
            for i in 0..2 * FRAME {
                let (channel, y, x) = (i / (SIDE * SIDE) % 3, i / SIDE % SIDE, i % SIDE);
                let pixel = self.values[((top + y) * self.width + left + x) * 3 + channel];
                values.push((f32::from(pixel) / 255.0 - 0.5) / 0.5);
            }
        }
        let seed = hash64(grid_h as u64, grid_w as u64);
        let hash = self.values.iter().fold(seed, |hash, pixel| hash64(hash, u64::from(*pixel)));
        let hash = [hash, hash64(hash, 1)].map(u64::to_le_bytes).concat();
        let hash = ContentHash(hash.try_into().expect("16 bytes"));
        Patches { values: values.into(), grid_t: 1, grid_h, grid_w, hash }
    }
}

/// What a tower makes of a picture: rows, and values before them by name.
#[derive(Clone, Debug, Default)]
pub struct Encoded {
    /// Finished rows.
    pub rows: Vec<f32>,
    /// Intermediate values, rows in the order of [`Intermediate`].
    pub values: BTreeMap<&'static str, Vec<f32>>,
}

/// Name of intermediate values in [`Encoded::values`].
fn name(what: Intermediate) -> Option<&'static str> {
    match what {
        Intermediate::Patches => Some("patches"),
        Intermediate::Layer(0) => Some("layer 0"),
        Intermediate::Layer(_) => None,
        Intermediate::Shuffled => Some("shuffled"),
        Intermediate::Projected => Some("projected"),
    }
}

/// Encodes with slices of `budget` rows.
///
/// # Errors
/// Those of the tower.
pub fn encode<B: VisionOps>(
    backend: &B,
    tower: &Tower<B>,
    patches: &Patches,
    budget: usize,
) -> Result<Encoded> {
    let mut encoded = Encoded::default();
    let mut encoding = tower.start(patches.clone())?;
    let spec = tower.spec();
    let mut observe = |what, first: usize, buf: &B::Buf, rows: usize| {
        let Some(name) = name(what) else { return Ok(()) };
        let cols = match what {
            Intermediate::Patches | Intermediate::Layer(_) => spec.hidden,
            Intermediate::Shuffled => spec.hidden * spec.merge * spec.merge,
            Intermediate::Projected => spec.out,
        };
        let values = encoded.values.entry(name).or_default();
        values.resize((first + rows) * cols, f32::NAN);
        backend.read(buf, 0, &mut values[first * cols..])
    };
    while !tower.advance_observed(&mut encoding, budget, &mut observe)? {}
    encoded.rows = vec![f32::NAN; tower.rows(patches) * spec.out];
    backend.read(&encoding.into_rows(), 0, &mut encoded.rows)?;
    Ok(encoded)
}
