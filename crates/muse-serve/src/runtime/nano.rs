//! The checkpoint inside the binary: a small trained model in the exact architecture, with its
//! drafter, so that an installed `muse` answers from any folder.

use muse_core::Result;
use muse_weights::Checkpoint;

/// What the embedded model is called.
pub(super) const NAME: &str = "muse-nano";

#[cfg(feature = "nano")]
pub(super) fn target() -> Result<Checkpoint> {
    Ok(Checkpoint::from_memory(&[
        ("config.json", include_bytes!("../../assets/nano/target/config.json")),
        (
            "generation_config.json",
            include_bytes!("../../assets/nano/target/generation_config.json"),
        ),
        ("tokenizer.json", include_bytes!("../../assets/nano/target/tokenizer.json")),
        ("model.safetensors", include_bytes!("../../assets/nano/target/model.safetensors")),
    ])?)
}

#[cfg(feature = "nano")]
pub(super) fn drafter() -> Result<Checkpoint> {
    Ok(Checkpoint::from_memory(&[
        ("config.json", include_bytes!("../../assets/nano/assistant/config.json")),
        ("model.safetensors", include_bytes!("../../assets/nano/assistant/model.safetensors")),
    ])?)
}

#[cfg(not(feature = "nano"))]
pub(super) fn target() -> Result<Checkpoint> {
    Err(muse_core::Error::Unsupported(
        "this build embeds no model; name one with --model, or build muse with the cargo feature \
         nano"
            .to_owned(),
    ))
}

#[cfg(not(feature = "nano"))]
pub(super) fn drafter() -> Result<Checkpoint> {
    target()
}
