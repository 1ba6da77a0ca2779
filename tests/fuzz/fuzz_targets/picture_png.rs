//! PNG and APNG: the file is the input. Inputs grow from sound files.
#![no_main]

#[path = "../picture.rs"]
mod picture;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};

const SOUND: [&[u8]; 3] = [
    include_bytes!("../../golden/pictures/files/palette4.png"),
    include_bytes!("../../golden/pictures/files/moving.png"),
    include_bytes!("../../golden/pictures/files/palette8_transparent.png"),
];

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let size = picture::plant(data, size, SOUND[seed as usize % SOUND.len()]);
    libfuzzer_sys::fuzzer_mutate(data, size, max_size)
});

fuzz_target!(|file: &[u8]| picture::read(file));
