//! What identifies a checkpoint: a short identity for KV blocks on disk, which is cheap, and a
//! hash of all its content, which reads every byte.

use muse_core::Result;
use muse_core::contract::WeightSource;
use muse_core::hash::hash64;
use sha2::{Digest, Sha256};

use super::LoadOptions;
use super::checkpoints::Checkpoints;

/// Bytes of each tensor that an identity without a stamp is made from.
const SAMPLED_BYTES: usize = 4096;

/// A number that differs where the KV blocks of two models would: other weights, or a `device`
/// description that computes or stores otherwise.
pub(super) fn kv_identity<'a>(
    sources: impl Iterator<Item = &'a dyn WeightSource>,
    device: String,
) -> Result<u64> {
    let mut bytes = device.into_bytes();
    for source in sources {
        match source.stamp() {
            Some(stamp) => bytes.extend(stamp.bytes()),
            None => sample(source, &mut bytes)?,
        }
    }
    Ok(bytes.iter().fold(bytes.len() as u64, |sum, &byte| hash64(sum, u64::from(byte))))
}

/// Appends the shape of a checkpoint and the first bytes of each tensor.
fn sample(source: &dyn WeightSource, out: &mut Vec<u8>) -> Result<()> {
    out.extend(format!("{:?}{:?}", source.spec(), source.tensors()).bytes());
    for tensor in source.tensors() {
        let view = source.weight(&tensor.name)?;
        out.extend(&view.bytes[..view.bytes.len().min(SAMPLED_BYTES)]);
    }
    Ok(())
}

/// SHA-256 of the content of a model and of its drafter, in hexadecimal. The same for the same
/// tensors, however they are split over files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentHashes {
    /// Of the model.
    pub model: String,
    /// Of the drafter, if there is one.
    pub drafter: Option<String>,
}

impl ContentHashes {
    /// Reads all files that `options` name.
    ///
    /// # Errors
    /// As [`super::load`], for the files.
    pub fn of(options: &LoadOptions) -> Result<Self> {
        let files = Checkpoints::open(options)?;
        let drafter = files.drafter.as_ref().map(|drafter| content_hash(drafter)).transpose()?;
        let model = content_hash(&files.target)?;
        files.check_unchanged()?;
        Ok(Self { model, drafter })
    }
}

/// Hashes name, format, shape and bytes of every tensor, in the order of the checkpoint.
fn content_hash(source: &dyn WeightSource) -> Result<String> {
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
