//! The contract of a vision encoder, with one that averages patches instead of encoding them.

use std::sync::Arc;

use muse_core::contract::{Backend, ContentHash};
use muse_core::{Error, Result};
use muse_testkit::fake::FakeBackend;
use muse_vision::{EncodeId, Patches, VisionEncoder};

/// Merges 2 x 2 patches into one row, which holds their mean.
struct MeanEncoder<B: Backend> {
    backend: Arc<B>,
    picture: Option<(EncodeId, Patches, Vec<f32>)>,
}

impl<B: Backend> VisionEncoder<B> for MeanEncoder<B> {
    fn merge(&self) -> usize {
        2
    }

    fn begin(&mut self, patches: &Patches) -> Result<EncodeId> {
        let id = EncodeId(1);
        self.picture = Some((id, patches.clone(), Vec::new()));
        Ok(id)
    }

    fn advance(&mut self, id: EncodeId, budget: usize) -> Result<Option<Arc<B::Buf>>> {
        let picture = self.picture.take().filter(|(known, ..)| *known == id);
        let Some((_, patches, mut means)) = picture else {
            return Err(Error::Invalid(format!("{id:?} was not begun, or is finished")));
        };
        let rows = self.rows(&patches);
        let share = patches.values.len() / rows;
        for values in patches.values.chunks_exact(share).skip(means.len()).take(budget) {
            means.push(values.iter().sum::<f32>() / share as f32);
        }
        if means.len() < rows {
            self.picture = Some((id, patches, means));
            return Ok(None);
        }
        let mut embeddings = self.backend.alloc(rows, 1)?;
        self.backend.write(&mut embeddings, 0, &means)?;
        Ok(Some(Arc::new(embeddings)))
    }

    fn cancel(&mut self, id: EncodeId) {
        self.picture.take_if(|(known, ..)| *known == id);
    }
}

fn main() -> Result<()> {
    let backend = Arc::new(FakeBackend::default());
    let mut encoder = MeanEncoder { backend: Arc::clone(&backend), picture: None };
    let patches = Patches {
        values: (0..4 * 4 * 3).map(|value| value as f32).collect(),
        grid_t: 1,
        grid_h: 4,
        grid_w: 4,
        hash: ContentHash([0; 16]),
    };
    let mut rows = vec![0.0; encoder.rows(&patches)];
    let id = encoder.begin(&patches)?;
    let mut slices = 1;
    let embeddings = loop {
        if let Some(done) = encoder.advance(id, 1)? {
            break done;
        }
        slices += 1; // A server answers other requests between two slices.
    };
    backend.read(&embeddings, 0, &mut rows)?;
    println!("{} rows after {slices} slices of work: {rows:?}", rows.len());
    Ok(())
}
