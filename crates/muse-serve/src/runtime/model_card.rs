//! Facts about a checkpoint: which of its tensors are the text model, their bytes and formats.

use muse_core::contract::{TensorInfo, WeightSource};

/// The tensors that are parameters of the text model. The norms of q and k hold a constant.
pub(super) fn text_tensors(source: &dyn WeightSource) -> impl Iterator<Item = &TensorInfo> {
    let text = |tensor: &&TensorInfo| {
        let name = &tensor.name;
        !name.starts_with("v.")
            && !name.starts_with("mm.")
            && !name.ends_with("attn_q_norm.weight")
            && !name.ends_with("attn_k_norm.weight")
    };
    source.tensors().iter().filter(text)
}

/// Parameters of the text model.
pub(super) fn parameters(source: &dyn WeightSource) -> u64 {
    text_tensors(source).map(|tensor| (tensor.rows * tensor.cols) as u64).sum()
}

/// Bytes of a tensor in the file.
pub(super) fn file_bytes(tensor: &TensorInfo) -> u64 {
    tensor.format.bytes_for(tensor.rows * tensor.cols) as u64
}

/// Formats of the text model with their share of its bytes, the largest first.
pub(super) fn formats(source: &dyn WeightSource) -> Vec<(String, f32)> {
    let total: u64 = text_tensors(source).map(file_bytes).sum();
    let mut shares: Vec<(String, f32)> = Vec::new();
    for tensor in text_tensors(source) {
        let share = file_bytes(tensor) as f32 / total as f32;
        let name = tensor.format.name();
        match shares.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += share,
            None => shares.push((name.to_owned(), share)),
        }
    }
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}
