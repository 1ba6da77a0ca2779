//! Pictures to the embedding rows that Muse-Glimmer reads in place of tokens.
//!
//! [`Picture`], [`Grid`] and [`picture_to_patches`] turn the bytes of a file into [`Patches`],
//! [`Video`] those of an animation.
//! [`Tower`] runs the vision tower and the projector on any [`VisionOps`] device, in slices of
//! rows; [`Encoder`] is a [`VisionEncoder`] over it that encodes a picture once for all requests,
//! and [`HostEncoder`] gives its rows to a device that cannot run the tower.
//!
//! ```
//! # fn main() -> muse_core::Result<()> {
//! use muse_vision::{DecodeOptions, Grid, MAX_IMAGE_TOKENS, Picture, TieRule, picture_to_patches};
//!
//! # let file = include_bytes!("../../../tests/golden/tiny/golden/img_e_100x75.png");
//! let picture = Picture::decode(file, &DecodeOptions::default())?;
//! let (height, width) = (picture.height as u32, picture.width as u32);
//! let grid = Grid::choose(height, width, MAX_IMAGE_TOKENS, TieRule::Larger)?;
//! let patches = picture_to_patches(picture, grid);
//! assert_eq!((grid.height, grid.width, grid.tokens()), (4, 3, 12));
//! assert_eq!((patches.grid_h, patches.grid_w, patches.values.len()), (8, 6, 8 * 6 * 1176));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod encoder;
mod grid;
mod limits;
mod patches;
mod picture;
mod resize;
mod tower;
mod video;

pub use encoder::{Encoder, HostEncoder};
pub use grid::{CELL_SIZE, Grid, MAX_IMAGE_TOKENS, TieRule};
pub use limits::Limits;
pub use muse_core::contract::{EncodeId, Patches, VisionEncoder, VisionOps};
pub use patches::{
    MERGE_SIZE, PATCH_LEN, PATCH_SIZE, TEMPORAL_PATCH_SIZE, frames_to_patches, picture_to_patches,
};
pub use picture::{Alpha, DecodeOptions, Format, Grey16, Picture, PictureInfo};
pub use resize::stretch;
pub use tower::{Encoding, Intermediate, TableBorder, TableOrder, Tower, TowerOptions};
pub use video::{AnimationInfo, MAX_FRAME_TOKENS, Video, VideoOptions, sample_frames};
