//! What a checkpoint holds, as a hash: the same for the same tensors, however they are split over
//! files.

use muse_core::Result;
use muse_core::contract::WeightSource;
use sha2::{Digest, Sha256};

use super::{Files, LoadOptions};

/// SHA-256 of the content of a model and of its drafter, in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentHashes {
    /// Of the model.
    pub model: String,
    /// Of the drafter, if there is one.
    pub drafter: Option<String>,
}

impl ContentHashes {
    /// Reads all that `options` name: takes as long as the files are large.
    ///
    /// # Errors
    /// As [`super::load`], for the files.
    pub fn of(options: &LoadOptions) -> Result<Self> {
        let files = Files::open(options)?;
        let drafter = files.drafter.as_ref().map(|drafter| hash(drafter)).transpose()?;
        Ok(Self { model: hash(&files.target)?, drafter })
    }
}

/// Of name, type, shape and bytes of every tensor, in the order of the checkpoint.
fn hash(source: &dyn WeightSource) -> Result<String> {
    let mut hash = Sha256::new();
    for tensor in source.tensors() {
        let view = source.weight(&tensor.name)?;
        let head = format!("{} {} {} {}\n", tensor.name, tensor.format, tensor.rows, tensor.cols);
        hash.update(head);
        hash.update(&view.bytes);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(all(test, feature = "nano"))]
mod tests {
    use super::*;

    #[test]
    fn a_drafter_counts_only_when_it_runs() {
        let both = ContentHashes::of(&LoadOptions::default()).expect("the embedded model");
        let alone = LoadOptions { max_draft: Some(0), ..LoadOptions::default() };
        let alone = ContentHashes::of(&alone).expect("the embedded model");
        assert_eq!((both.model.len(), &both.model), (64, &alone.model));
        assert_eq!(alone.drafter, None);
        assert_ne!(both.drafter.expect("a drafter"), both.model);
    }
}
