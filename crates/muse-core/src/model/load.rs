//! Loads tensors of a checkpoint onto a device, each checked against the shape that the
//! checkpoint's own configuration gives it.

use crate::contract::{Backend, WeightSource, WeightView};
use crate::{Error, Result};

/// Loads tensors by name and reports progress.
pub struct Loader<'a, B: Backend> {
    backend: &'a B,
    source: &'a dyn WeightSource,
    progress: &'a mut dyn FnMut(usize, usize),
    done: usize,
    total: usize,
}

impl<'a, B: Backend> Loader<'a, B> {
    /// A loader of `total` tensors; `progress` is called with `(loaded, total)` after each.
    pub fn new(
        backend: &'a B,
        source: &'a dyn WeightSource,
        total: usize,
        progress: &'a mut dyn FnMut(usize, usize),
    ) -> Self {
        Self { backend, source, progress, done: 0, total }
    }

    /// A weight matrix `[rows, cols]`.
    pub fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<B::Weight> {
        let weight = self.backend.load(self.view(name, rows, cols)?)?;
        self.source.release(name);
        self.count();
        Ok(weight)
    }

    /// A vector as a buffer `[1, cols]`.
    pub fn vector(&mut self, name: &str, cols: usize) -> Result<B::Buf> {
        let values = self.view(name, 1, cols)?.to_f32();
        let mut buf = self.backend.alloc(1, cols)?;
        self.backend.write(&mut buf, 0, &values)?;
        self.count();
        Ok(buf)
    }

    /// A matrix `[rows, cols]` as values of the host.
    pub fn values(&mut self, name: &str, rows: usize, cols: usize) -> Result<Vec<f32>> {
        let values = self.view(name, rows, cols)?.to_f32();
        self.source.release(name);
        self.count();
        Ok(values)
    }

    fn view(&self, name: &str, rows: usize, cols: usize) -> Result<WeightView<'a>> {
        let view = self.source.weight(name)?;
        if (view.rows, view.cols) != (rows, cols) {
            return Err(Error::Corrupt(format!(
                "tensor {name} is [{}, {}], but the checkpoint's configuration needs [{rows}, \
                 {cols}]; the tensors and the configuration belong to different models, fetch both \
                 again",
                view.rows, view.cols
            )));
        }
        Ok(view)
    }

    fn count(&mut self) {
        self.done += 1;
        (self.progress)(self.done, self.total);
    }
}
