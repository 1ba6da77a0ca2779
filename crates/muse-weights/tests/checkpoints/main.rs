//! Opens the checkpoints of the tree, variants of sound files, and broken files.

mod broken_folder;
mod broken_gguf;
mod broken_keys;
mod files;
mod gguf;
mod huggingface;
mod inspect;
mod support;
mod variants;
