//! A tensor as its container describes it: under the file's name and in the file's layout.

use std::ops::Range;

use muse_core::quant::Format;

use crate::error::{Error, Result};

/// How a container says a tensor's values are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// A format that this build reads.
    Known(Format),
    /// A format that it does not read. Such a file can still be inspected.
    Foreign { name: String, advice: &'static str },
}

impl Encoding {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Known(format) => format.name(),
            Self::Foreign { name, .. } => name,
        }
    }
}

/// A tensor of a container. `range` was checked to lie inside the file.
#[derive(Clone, Debug)]
pub(crate) struct RawTensor {
    pub(crate) name: String,
    /// Index of the file that holds it.
    pub(crate) file: usize,
    pub(crate) encoding: Encoding,
    /// Outermost dimension first.
    pub(crate) shape: Vec<usize>,
    /// Bytes of the file.
    pub(crate) range: Range<usize>,
}

/// The product of dimensions, unless it overflows.
pub(crate) fn checked_product(dims: &[usize]) -> Option<usize> {
    dims.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim))
}

/// Refuses two tensors of one name.
pub(crate) fn refuse_duplicates(file: &str, tensors: &[RawTensor]) -> Result<()> {
    let mut names: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => Err(Error::Tensor {
            file: file.to_owned(),
            tensor: crate::error::escaped(pair[0]),
            found: "two tensors of this name".to_owned(),
            expected: "each name once".to_owned(),
        }),
    }
}
