//! A vision tower of the published width with random weights, in memory.

use std::borrow::Cow;

use muse_core::Result;
use muse_core::contract::{
    CheckpointSpec, GenerationDefaults, TensorInfo, VisionSpec, Vocabulary, WeightSource,
    WeightView,
};
use muse_core::quant::Format;

use super::Blocks;

/// The published tower with so many layers.
pub fn tower_shape(layers: usize) -> VisionSpec {
    VisionSpec {
        hidden: 1536,
        ffn: 8960,
        heads: 16,
        full_layers: (1..=layers).map(|layer| layer % 4 == 0 || layer == layers).collect(),
        patch: 14,
        temporal: 2,
        merge: 2,
        table: (32, 32),
        norm_eps: 1e-5,
        rope_theta: 10_000.0,
        projector: 4096,
        out: 6656,
    }
}

/// A checkpoint whose tensors are made when they are read.
pub struct RandomTower {
    spec: CheckpointSpec,
    generation: GenerationDefaults,
    tensors: Vec<TensorInfo>,
}

impl RandomTower {
    /// A tower with matrices in a format, and the patch kernel and the table in F32.
    pub fn new(spec: VisionSpec, format: Format) -> Self {
        let VisionSpec { hidden, ffn, patch, temporal, merge, table, projector, out, .. } = spec;
        let mut tensors = Vec::new();
        let mut add = |name: String, format, rows, cols| {
            tensors.push(TensorInfo { name, format, rows, cols });
        };
        let kernel = temporal * 3 * patch * patch;
        add("v.patch_embd.weight".to_owned(), Format::F32, hidden, kernel);
        add("v.position_embd.weight".to_owned(), Format::F32, table.0 * table.1, hidden);
        let norms = |layer: usize| ["ln1", "ln2"].map(|part| format!("v.blk.{layer}.{part}"));
        let layers = 0..spec.full_layers.len();
        let norms = layers.clone().flat_map(norms);
        for name in norms.chain(["v.pre_ln", "v.post_ln"].map(str::to_owned)) {
            add(format!("{name}.weight"), Format::F32, 1, hidden);
            add(format!("{name}.bias"), Format::F32, 1, hidden);
        }
        for (layer, (part, rows, cols)) in layers.flat_map(|layer| {
            let square = ["attn_q", "attn_k", "attn_v", "attn_out"].map(|p| (p, hidden, hidden));
            let ffn = [("ffn_up", ffn, hidden), ("ffn_down", hidden, ffn)];
            square.into_iter().chain(ffn).map(move |matrix| (layer, matrix))
        }) {
            add(format!("v.blk.{layer}.{part}.weight"), format, rows, cols);
            add(format!("v.blk.{layer}.{part}.bias"), Format::F32, 1, rows);
        }
        for (i, (rows, cols)) in
            [(projector, hidden * merge * merge), (projector, projector), (out, projector)]
                .into_iter()
                .enumerate()
        {
            add(format!("mm.{i}.weight"), format, rows, cols);
        }
        let spec = CheckpointSpec { vision: Some(spec), ..CheckpointSpec::default() };
        Self { spec, generation: GenerationDefaults::default(), tensors }
    }
}

impl WeightSource for RandomTower {
    fn spec(&self) -> &CheckpointSpec {
        &self.spec
    }

    fn generation(&self) -> &GenerationDefaults {
        &self.generation
    }

    fn vocabulary(&self) -> Result<Option<Vocabulary>> {
        Ok(None)
    }

    fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    fn weight(&self, name: &str) -> Result<WeightView<'_>> {
        let index = self.tensors.iter().position(|tensor| tensor.name == name);
        let index = index.expect("a tensor of the tower");
        let TensorInfo { name, format, rows, cols } = &self.tensors[index];
        let mut bytes = vec![0; format.bytes_for(rows * cols)];
        if *rows == 1 && name.ends_with(".weight") {
            bytes.chunks_exact_mut(4).for_each(|x| x.copy_from_slice(&1.0_f32.to_le_bytes()));
        } else {
            Blocks::new(*format, index as u64).fill(&mut bytes);
        }
        Ok(WeightView { name, format: *format, rows: *rows, cols: *cols, bytes: Cow::Owned(bytes) })
    }
}
