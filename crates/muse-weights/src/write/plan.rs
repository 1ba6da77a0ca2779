//! Which tensors a GGUF file of a model has, in which format and row order.

use muse_core::contract::{CheckpointSpec, TensorInfo, TextSpec, WeightSource};
use muse_core::quant::Format;

use super::file::GgufTensor;
use crate::checkpoint::Checkpoint;
use crate::layout::{Change, Dialect, Part, parts};

/// A GGUF file holds one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// The text model.
    Text,
    /// A DFlash drafter.
    Drafter,
    /// The vision tower with its projector.
    Vision,
}

impl ModelKind {
    /// The models of a checkpoint.
    pub fn of(spec: &CheckpointSpec) -> Vec<Self> {
        [
            (Self::Text, spec.text.is_some()),
            (Self::Drafter, spec.drafter.is_some()),
            (Self::Vision, spec.vision.is_some()),
        ]
        .into_iter()
        .filter_map(|(kind, has)| has.then_some(kind))
        .collect()
    }

    fn only(self, spec: &CheckpointSpec) -> CheckpointSpec {
        let spec = spec.clone();
        match self {
            Self::Text => CheckpointSpec { text: spec.text, ..CheckpointSpec::default() },
            Self::Drafter => CheckpointSpec { drafter: spec.drafter, ..CheckpointSpec::default() },
            Self::Vision => CheckpointSpec { vision: spec.vision, ..CheckpointSpec::default() },
        }
    }
}

/// A tensor of the file and where its values come from.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) tensor: GgufTensor,
    /// The canonical tensor of the same name.
    pub(super) source: TensorInfo,
    /// What was asked for, where the width does not allow it.
    pub(super) wanted: Option<Format>,
    pub(super) order: Order,
}

/// How the file's rows or values come from the canonical ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Same,
    /// Rows of heads, or a vector's values, go from half-split to interleaved order.
    Interleaved {
        heads: usize,
    },
    /// Rows have the halves of a patch kernel side by side: their sum.
    Summed,
}

impl Order {
    /// For row `row` of the file, of `rows`, the canonical row.
    pub(super) fn row(self, row: usize, rows: usize) -> usize {
        match self {
            Self::Same | Self::Summed => row,
            Self::Interleaved { heads } => {
                let head = rows / heads;
                let (first, within) = (row / head * head, row % head);
                first + within % 2 * (head / 2) + within / 2
            }
        }
    }
}

/// The tensors of a model's file. Matrices are in `body`, the head in `head`; vectors and the small
/// tables of the vision tower are in F32, as other programs expect them.
pub(super) fn plan(
    checkpoint: &Checkpoint,
    kind: ModelKind,
    body: Format,
    head: Format,
) -> Vec<Planned> {
    let planned = |(part, tensor, wanted): (Part, GgufTensor, Option<Format>)| {
        let source = checkpoint.tensors().iter().find(|info| info.name == part.name);
        let source = source.expect("checkpoints have every tensor of their spec").clone();
        let width = tensor.shape.iter().skip(1).product::<usize>();
        let order = match part.change {
            Change::Split { heads } => Order::Interleaved { heads },
            _ if source.rows > 1 && source.cols != width => Order::Summed,
            _ => Order::Same,
        };
        Planned { tensor, source, wanted, order }
    };
    tensors(&kind.only(checkpoint.spec()), body, head).map(planned).collect()
}

/// The tensors of a model's file, and the formats that were asked for where the width does not
/// allow them.
fn tensors(
    spec: &CheckpointSpec,
    body: Format,
    head: Format,
) -> impl Iterator<Item = (Part, GgufTensor, Option<Format>)> {
    let parts = parts(Dialect::Gguf, spec, 1.0, &|_| false);
    parts.into_iter().map(move |part| {
        let table = matches!(part.name.as_str(), "v.position_embd.weight" | "v.patch_embd.weight");
        let asked = match part.name.as_str() {
            _ if part.rows == 1 || table => Format::F32,
            "output.weight" => head,
            _ => body,
        };
        let format = fitting(asked, part.cols);
        let shape = part.source_shape.clone();
        let tensor = GgufTensor { name: part.source.clone(), format, shape };
        (part, tensor, (format != asked).then_some(asked))
    })
}

impl GgufTensor {
    /// The tensors of a text model's file: matrices in `body`, the head in `head`, where the width
    /// allows it, and vectors in F32.
    pub fn of_text(spec: &TextSpec, body: Format, head: Format) -> Vec<Self> {
        let spec = CheckpointSpec { text: Some(spec.clone()), ..CheckpointSpec::default() };
        tensors(&spec, body, head).map(|(_, tensor, _)| tensor).collect()
    }
}

/// The format, or the nearest one above it whose blocks divide the width.
fn fitting(format: Format, width: usize) -> Format {
    if width.is_multiple_of(format.block_values()) {
        return format;
    }
    match format {
        Format::Q4K => fitting(Format::Q5_0, width),
        Format::Q5K => fitting(Format::Q5_1, width),
        Format::Q6K => fitting(Format::Q8_0, width),
        _ => Format::F16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaving_undoes_half_split() {
        let order: Vec<usize> =
            (0..12).map(|row| Order::Interleaved { heads: 2 }.row(row, 12)).collect();
        assert_eq!(order, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
    }

    #[test]
    fn widths_that_do_not_divide_take_the_next_larger_format() {
        for (asked, width, want) in [
            (Format::Q4K, 512, Format::Q4K),
            (Format::Q4K, 128, Format::Q5_0),
            (Format::Q5K, 96, Format::Q5_1),
            (Format::Q6K, 32, Format::Q8_0),
            (Format::Q6K, 36, Format::F16),
            (Format::Q4_0, 48, Format::F16),
            (Format::Bf16, 7, Format::Bf16),
        ] {
            assert_eq!(fitting(asked, width), want, "{asked} {width}");
        }
    }
}
