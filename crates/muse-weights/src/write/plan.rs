//! Plans the tensors of a GGUF file: their formats and the order of their rows.

use muse_core::contract::{CheckpointSpec, TensorInfo, TextSpec, WeightSource};
use muse_core::quant::Format;

use super::file::GgufTensor;
use crate::checkpoint::Checkpoint;
use crate::layout::{Naming, TensorPlan, Transform, tensor_plans};

/// The kind of model in a GGUF file, which holds one.
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
    /// The kinds of model in a checkpoint.
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

/// A tensor of the file and the source of its values.
#[derive(Clone, Debug)]
pub(super) struct PlannedTensor {
    pub(super) tensor: GgufTensor,
    /// The canonical tensor of the same name.
    pub(super) source: TensorInfo,
    /// The requested format, where the width does not allow it.
    pub(super) requested: Option<Format>,
    pub(super) order: RowOrder,
}

/// How the file's rows (for a vector, its values) follow from the canonical ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowOrder {
    Same,
    /// The rows of every head go from half-split to interleaved rotary order.
    Interleaved {
        heads: usize,
    },
    /// Each row is the sum of the two temporal halves of a patch kernel, which the canonical row
    /// has side by side.
    Summed,
}

impl RowOrder {
    /// The canonical row that becomes row `row` of the file, of `rows`.
    pub(super) fn source_row(self, row: usize, rows: usize) -> usize {
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

/// The tensors of a model's file. Matrices are in `format`, the LM head in `lm_head`. Vectors, the
/// patch kernel and the position table of the vision tower are in F32, as llama.cpp expects them.
pub(super) fn plan(
    checkpoint: &Checkpoint,
    kind: ModelKind,
    format: Format,
    lm_head: Format,
) -> Vec<PlannedTensor> {
    let planned = |(plan, tensor, requested): (TensorPlan, GgufTensor, Option<Format>)| {
        let source = checkpoint.tensors().iter().find(|info| info.name == plan.name);
        let source = source.expect("a checkpoint has every tensor of its spec").clone();
        let width = tensor.shape.iter().skip(1).product::<usize>();
        let order = match plan.transform {
            Transform::Deinterleave { heads } => RowOrder::Interleaved { heads },
            _ if source.rows > 1 && source.cols != width => RowOrder::Summed,
            _ => RowOrder::Same,
        };
        PlannedTensor { tensor, source, requested, order }
    };
    tensors(&kind.only(checkpoint.spec()), format, lm_head).map(planned).collect()
}

/// The tensors of a model's file, and the requested formats where the width does not allow them.
fn tensors(
    spec: &CheckpointSpec,
    format: Format,
    lm_head: Format,
) -> impl Iterator<Item = (TensorPlan, GgufTensor, Option<Format>)> {
    let plans = tensor_plans(Naming::Gguf, spec, 1.0, &|_| false);
    plans.into_iter().map(move |plan| {
        let table = matches!(plan.name.as_str(), "v.position_embd.weight" | "v.patch_embd.weight");
        let requested = match plan.name.as_str() {
            _ if plan.rows == 1 || table => Format::F32,
            "output.weight" => lm_head,
            _ => format,
        };
        let format = fitting_format(requested, plan.cols);
        let shape = plan.source_shape.clone();
        let tensor = GgufTensor { name: plan.source.clone(), format, shape };
        (plan, tensor, (format != requested).then_some(requested))
    })
}

impl GgufTensor {
    /// The tensors of a text model's file: matrices in `format`, the LM head in `lm_head`, where
    /// the width allows it, and vectors in F32.
    pub fn of_text(spec: &TextSpec, format: Format, lm_head: Format) -> Vec<Self> {
        let spec = CheckpointSpec { text: Some(spec.clone()), ..CheckpointSpec::default() };
        tensors(&spec, format, lm_head).map(|(_, tensor, _)| tensor).collect()
    }
}

/// The format, or the nearest larger one whose quant block divides the width.
fn fitting_format(format: Format, width: usize) -> Format {
    if width.is_multiple_of(format.block_values()) {
        return format;
    }
    match format {
        Format::Q4K => fitting_format(Format::Q5_0, width),
        Format::Q5K => fitting_format(Format::Q5_1, width),
        Format::Q6K => fitting_format(Format::Q8_0, width),
        _ => Format::F16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaving_undoes_half_split_order() {
        let order: Vec<usize> =
            (0..12).map(|row| RowOrder::Interleaved { heads: 2 }.source_row(row, 12)).collect();
        assert_eq!(order, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
    }

    #[test]
    fn widths_that_do_not_divide_take_the_next_larger_format() {
        for (requested, width, want) in [
            (Format::Q4K, 512, Format::Q4K),
            (Format::Q4K, 128, Format::Q5_0),
            (Format::Q5K, 96, Format::Q5_1),
            (Format::Q6K, 32, Format::Q8_0),
            (Format::Q6K, 36, Format::F16),
            (Format::Q4_0, 48, Format::F16),
            (Format::Bf16, 7, Format::Bf16),
        ] {
            assert_eq!(fitting_format(requested, width), want, "{requested} {width}");
        }
    }
}
