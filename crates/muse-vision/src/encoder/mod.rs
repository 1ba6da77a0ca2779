//! The vision encoder: pictures in the order of their requests, each encoded once for all requests
//! that show it.

mod host;
mod rows;

use std::collections::VecDeque;
use std::sync::Arc;

use muse_core::contract::{ContentHash, EncodeId, Patches, VisionEncoder, VisionOps};
use muse_core::{Error, Result};

pub use host::HostEncoder;

use crate::tower::{Encoding, Tower};
use rows::EncodedRows;

/// A vision encoder on a device that runs the tower.
///
/// Memory beside the weights: the buffers of one picture ([`Tower::encoding_bytes`]) and its
/// patches while it is encoded, the patches of waiting pictures, rows that requests hold, and at
/// most `remembered_bytes` of rows that are remembered for later requests.
pub struct Encoder<B: VisionOps> {
    tower: Tower<B>,
    requests: Vec<EncodeRequest<B>>,
    /// Pictures without rows, the one that was begun first in front.
    waiting: VecDeque<Patches>,
    /// The picture in front, once its encoding has started.
    encoding: Option<Encoding<B>>,
    encoded: EncodedRows<B>,
    next_id: u64,
}

/// A request for the rows of a picture.
struct EncodeRequest<B: VisionOps> {
    id: EncodeId,
    picture: ContentHash,
    rows: Option<Arc<B::Buf>>,
}

impl<B: VisionOps> Encoder<B> {
    /// Bytes of rows that are remembered by default: two pictures of the largest size at the
    /// published width.
    pub const DEFAULT_REMEMBERED_BYTES: usize = 256 << 20;

    /// An encoder that remembers rows of at most `remembered_bytes`.
    pub fn new(tower: Tower<B>, remembered_bytes: usize) -> Self {
        Self {
            tower,
            requests: Vec::new(),
            waiting: VecDeque::new(),
            encoding: None,
            encoded: EncodedRows::new(remembered_bytes),
            next_id: 0,
        }
    }

    /// The tower.
    pub fn tower(&self) -> &Tower<B> {
        &self.tower
    }

    /// Advances the picture in front. Its rows go to all requests for it once they are finished.
    fn advance_first(&mut self, budget: usize) -> Result<()> {
        let Some(patches) = self.waiting.front() else { return Ok(()) };
        let mut encoding = match self.encoding.take() {
            Some(encoding) => encoding,
            None => self.tower.start(patches.clone())?,
        };
        if !self.tower.advance(&mut encoding, budget)? {
            self.encoding = Some(encoding);
            return Ok(());
        }
        let rows = Arc::new(encoding.into_rows());
        let bytes = self.tower.rows(patches) * self.tower.spec().out * size_of::<f32>();
        let picture = patches.hash;
        self.waiting.pop_front();
        let requests = self.requests.iter_mut().filter(|request| request.picture == picture);
        requests.for_each(|request| request.rows = Some(Arc::clone(&rows)));
        self.encoded.insert(picture, rows, bytes);
        Ok(())
    }
}

impl<B: VisionOps> VisionEncoder<B> for Encoder<B> {
    fn merge(&self) -> usize {
        self.tower.spec().merge
    }

    fn begin(&mut self, patches: &Patches) -> Result<EncodeId> {
        self.tower.check(patches)?;
        let (id, picture) = (EncodeId(self.next_id), patches.hash);
        self.next_id += 1;
        let rows = self.encoded.find(picture);
        if rows.is_none() && !self.waiting.iter().any(|waiting| waiting.hash == picture) {
            self.waiting.push_back(patches.clone());
        }
        self.requests.push(EncodeRequest { id, picture, rows });
        Ok(id)
    }

    fn advance(&mut self, id: EncodeId, budget: usize) -> Result<Option<Arc<B::Buf>>> {
        let Some(index) = self.requests.iter().position(|request| request.id == id) else {
            return Err(Error::Invalid(format!(
                "{id:?} is not being encoded: it was never begun, is finished or was cancelled"
            )));
        };
        if self.requests[index].rows.is_none() {
            self.advance_first(budget)?;
        }
        let finished = self.requests[index].rows.is_some();
        Ok(if finished { self.requests.remove(index).rows } else { None })
    }

    fn cancel(&mut self, id: EncodeId) {
        let Some(index) = self.requests.iter().position(|request| request.id == id) else { return };
        let EncodeRequest { picture, .. } = self.requests.remove(index);
        if self.requests.iter().any(|request| request.picture == picture) {
            return;
        }
        if let Some(place) = self.waiting.iter().position(|waiting| waiting.hash == picture) {
            self.waiting.remove(place);
            if place == 0 {
                self.encoding = None;
            }
        }
    }
}
