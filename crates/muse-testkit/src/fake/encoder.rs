//! The fake vision encoder: each row is a hash of the picture and its number, encoded in slices like a
//! real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use muse_core::contract::{Backend, ContentHash, EncodeId, Patches, VisionEncoder};
use muse_core::hash::hash64;
use muse_core::{Error, Result};

use super::{FakeModel, device_fault};

/// How often each row of a picture goes through a slice.
const LAYERS: usize = 3;

/// A vision encoder that computes hashes.
pub struct FakeEncoder<B: Backend> {
    backend: Arc<B>,
    model: FakeModel,
    /// Requests with the rows that still have to be encoded.
    requests: Vec<(EncodeId, Patches, usize)>,
    next_id: u64,
    log: Arc<EncoderLog>,
}

/// What a fake encoder did.
#[derive(Debug, Default)]
pub struct EncoderLog {
    /// Pictures that were begun.
    pub begun: AtomicU64,
    /// Pictures that were cancelled.
    pub cancelled: AtomicU64,
    /// Requests that were neither finished nor cancelled.
    pub open: AtomicU64,
    /// The slice to fail at, counted from 1; 0 never.
    pub fail_at: AtomicU64,
    /// Slices.
    pub slices: AtomicU64,
}

impl<B: Backend> FakeEncoder<B> {
    /// An encoder beside a fake target model, on its clock.
    pub fn new(backend: Arc<B>, model: FakeModel) -> Self {
        Self { backend, model, requests: Vec::new(), next_id: 0, log: Arc::default() }
    }

    /// What it does.
    pub fn log(&self) -> Arc<EncoderLog> {
        Arc::clone(&self.log)
    }
}

/// The embedding of a row of a picture.
pub fn picture_row(picture: ContentHash, row: usize) -> f32 {
    let (halves, _) = picture.0.as_chunks::<8>();
    let hash = halves.iter().fold(row as u64, |hash, half| hash64(hash, u64::from_le_bytes(*half)));
    (hash >> 40) as f32
}

impl<B: Backend> VisionEncoder<B> for FakeEncoder<B> {
    fn merge(&self) -> usize {
        2
    }

    fn begin(&mut self, patches: &Patches) -> Result<EncodeId> {
        let id = EncodeId(self.next_id);
        self.next_id += 1;
        let rows = self.rows(patches);
        if rows == 0 {
            return Err(Error::Invalid("a picture of no rows, expected at least one".into()));
        }
        self.requests.push((id, patches.clone(), LAYERS * rows));
        self.log.begun.fetch_add(1, Ordering::Relaxed);
        self.log.open.fetch_add(1, Ordering::Relaxed);
        Ok(id)
    }

    fn advance(&mut self, id: EncodeId, budget: usize) -> Result<Option<Arc<B::Buf>>> {
        assert!(budget > 0, "a slice of no rows never ends");
        let slice = 1 + self.log.slices.fetch_add(1, Ordering::Relaxed);
        if slice == self.log.fail_at.load(Ordering::Relaxed) {
            return Err(device_fault("encoding a picture"));
        }
        let index = self.requests.iter().position(|request| request.0 == id);
        let index = index.expect("a request that was begun");
        let left = &mut self.requests[index].2;
        let rows = budget.min(*left);
        *left -= rows;
        self.model.spend((self.model.options.cost.pass)(rows));
        if *left > 0 {
            return Ok(None);
        }
        let (_, patches, _) = self.requests.remove(index);
        self.log.open.fetch_sub(1, Ordering::Relaxed);
        let rows = self.rows(&patches);
        let mut buf = self.backend.alloc(rows, 1)?;
        for row in 0..rows {
            self.backend.write(&mut buf, row, &[picture_row(patches.hash, row)])?;
        }
        Ok(Some(Arc::new(buf)))
    }

    fn cancel(&mut self, id: EncodeId) {
        let before = self.requests.len();
        self.requests.retain(|request| request.0 != id);
        assert_eq!(before, self.requests.len() + 1, "a request that was begun");
        self.log.cancelled.fetch_add(1, Ordering::Relaxed);
        self.log.open.fetch_sub(1, Ordering::Relaxed);
    }
}
