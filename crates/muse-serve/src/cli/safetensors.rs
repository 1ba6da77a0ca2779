//! The header of a safetensors file with one tensor.

use serde_json::json;

/// What stands before the values of an F32 tensor, its only one.
pub(super) fn header(name: &str, shape: [usize; 2]) -> Vec<u8> {
    let bytes = shape[0] * shape[1] * size_of::<f32>();
    let tensor = json!({ "dtype": "F32", "shape": shape, "data_offsets": [0, bytes] });
    let mut header = json!({ name: tensor }).to_string();
    // Spaces align what follows to 8 bytes.
    header.push_str(&" ".repeat(header.len().next_multiple_of(8) - header.len()));
    [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat()
}
