//! Reads Muse-Glimmer checkpoints: safetensors folders and GGUF files, memory-mapped.
