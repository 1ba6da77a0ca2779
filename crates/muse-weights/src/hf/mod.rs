//! Reads HuggingFace folders: a target with text and vision, or a DFlash assistant.

mod config;
mod drafter;
mod folder;
mod generation;
mod object;
mod text;
mod vision;

pub(crate) use config::HfModel;
pub(crate) use folder::HfFolder;
pub(crate) use vision::default_full_layers;
