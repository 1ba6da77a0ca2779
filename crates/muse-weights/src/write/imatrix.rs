//! Importance matrices (imatrix), as llama.cpp's llama-imatrix writes them.

use std::collections::HashMap;
use std::path::Path;

use crate::error::{Error, Result, escaped};
use crate::gguf::ImatrixFile;

/// The importance of each column of a matrix: the mean square of its input over a text.
#[derive(Clone, Debug)]
pub struct Imatrix {
    name: String,
    by_tensor: HashMap<String, Vec<f32>>,
}

impl Imatrix {
    /// Reads a file in the GGUF format: tensors `NAME.in_sum2` and `NAME.counts`.
    ///
    /// # Errors
    /// [`Error`] when the file is broken, or in the older format that is not GGUF.
    pub fn open(path: &Path) -> Result<Self> {
        let file = ImatrixFile::open(path)?;
        let mut by_tensor = HashMap::new();
        for (name, sums) in file.floats(".in_sum2")? {
            let counts = format!("{name}.counts");
            let refuse = |tensor: &str, found: String, expected: &str| Error::Tensor {
                file: file.name().to_owned(),
                tensor: escaped(tensor),
                found,
                expected: expected.to_owned(),
            };
            let count = match file.float(&counts)?.as_deref() {
                Some([count]) if count.is_finite() && *count >= 0.0 => *count,
                Some(other) => {
                    let found = format!("{} counts", other.len());
                    return Err(refuse(&counts, found, "one that is not negative"));
                }
                None => return Err(refuse(&counts, "no such tensor".to_owned(), "it")),
            };
            if let Some(sum) = sums.iter().find(|sum| !(sum.is_finite() && **sum >= 0.0)) {
                let name = format!("{name}.in_sum2");
                return Err(refuse(&name, sum.to_string(), "sums of squares"));
            }
            // No token reached this matrix: its importances are not known.
            if count > 0.0 {
                by_tensor.insert(name, sums.into_iter().map(|sum| sum / count).collect());
            }
        }
        file.check_unchanged()?;
        Ok(Self { name: file.name().to_owned(), by_tensor })
    }

    /// The path of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of matrices with known importances.
    pub fn len(&self) -> usize {
        self.by_tensor.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.by_tensor.is_empty()
    }

    /// The importances of a matrix's columns, if they are known.
    pub(super) fn columns(&self, tensor: &str, width: usize) -> Result<Option<&[f32]>> {
        match self.by_tensor.get(tensor) {
            Some(columns) if columns.len() != width => Err(Error::Tensor {
                file: self.name.clone(),
                tensor: escaped(&format!("{tensor}.in_sum2")),
                found: format!("{} columns", columns.len()),
                expected: format!("{width}, as the model has; is it of another model?"),
            }),
            columns => Ok(columns.map(Vec::as_slice)),
        }
    }
}
