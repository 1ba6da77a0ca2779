//! A checkpoint with changes: another configuration, other tensor values.

use std::borrow::Cow;
use std::collections::HashMap;

use muse_core::Result;
use muse_core::contract::{
    CheckpointSpec, DrafterSpec, GenerationDefaults, TensorInfo, TextSpec, Vocabulary,
    WeightSource, WeightView,
};
use muse_core::quant::Format;

/// A checkpoint that differs from `source` in what was edited.
pub struct Edited<'a> {
    source: &'a dyn WeightSource,
    spec: CheckpointSpec,
    /// New values, as F32 bytes.
    changed: HashMap<String, Vec<u8>>,
}

impl<'a> Edited<'a> {
    /// Nothing edited yet.
    pub fn new(source: &'a dyn WeightSource) -> Self {
        Self { source, spec: source.spec().clone(), changed: HashMap::new() }
    }

    /// The text model's configuration.
    pub fn text(&mut self) -> &mut TextSpec {
        self.spec.text.as_mut().expect("a text model")
    }

    /// The drafter's configuration.
    pub fn drafter(&mut self) -> &mut DrafterSpec {
        self.spec.drafter.as_mut().expect("a drafter")
    }

    /// Edits the values, `[rows, cols]`, of every tensor whose name ends in `part` + `.weight`.
    ///
    /// # Panics
    /// When there is none: the test would test nothing.
    pub fn tensors(&mut self, part: &str, edit: impl Fn(&mut [f32], usize)) {
        let ending = format!("{part}.weight");
        let mut found = false;
        for info in self.source.tensors().iter().filter(|info| info.name.ends_with(&ending)) {
            let view = self.source.weight(&info.name).expect("a tensor of the list");
            let mut values = view.to_f32();
            edit(&mut values, view.cols);
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            self.changed.insert(info.name.clone(), bytes);
            found = true;
        }
        assert!(found, "no tensor ends in {ending}");
    }
}

impl WeightSource for Edited<'_> {
    fn spec(&self) -> &CheckpointSpec {
        &self.spec
    }

    fn generation(&self) -> &GenerationDefaults {
        self.source.generation()
    }

    fn vocabulary(&self) -> Result<Option<Vocabulary>> {
        self.source.vocabulary()
    }

    fn tensors(&self) -> &[TensorInfo] {
        self.source.tensors()
    }

    fn weight(&self, name: &str) -> Result<WeightView<'_>> {
        let mut view = self.source.weight(name)?;
        if let Some(bytes) = self.changed.get(name) {
            (view.format, view.bytes) = (Format::F32, Cow::Borrowed(bytes.as_slice()));
        }
        Ok(view)
    }
}
