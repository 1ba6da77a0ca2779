//! A picture file to patches and grid: `cargo run -p muse-vision --example patches FILE`.

use muse_vision::{DecodeOptions, Grid, MAX_IMAGE_TOKENS, Picture, TieRule, picture_to_patches};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("name a PNG, JPEG, WebP, GIF or BMP file")?;
    let picture = Picture::decode(&std::fs::read(file)?, &DecodeOptions::default())?;
    let (height, width) = (picture.height as u32, picture.width as u32);
    let grid = Grid::choose(height, width, MAX_IMAGE_TOKENS, TieRule::Larger)?;
    let patches = picture_to_patches(picture, grid);
    println!("{width} x {height} pixels: {grid:?}, {} tokens", grid.tokens());
    println!("patches [{}, 1176], {:?}", patches.grid_h * patches.grid_w, patches.hash);
    Ok(())
}
