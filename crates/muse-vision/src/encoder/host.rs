//! Rows for a device that cannot run the tower.

use std::sync::{Arc, Weak};

use muse_core::Result;
use muse_core::contract::{Backend, ContentHash, EncodeId, Patches, VisionEncoder};

/// Encodes on a host device `H`, such as the CPU, and writes the rows to a device `B`.
///
/// Rows on the device are shared while requests hold them; afterwards the host's encoder may still
/// remember them.
pub struct HostEncoder<H: Backend, B: Backend, E> {
    host: Arc<H>,
    device: Arc<B>,
    encoder: E,
    /// Width of a row.
    hidden: usize,
    requests: Vec<HostRequest>,
    /// Rows on the device that requests may still hold.
    written: Vec<(ContentHash, Weak<B::Buf>)>,
}

struct HostRequest {
    id: EncodeId,
    picture: ContentHash,
    rows: usize,
}

impl<H: Backend, B: Backend, E: VisionEncoder<H>> HostEncoder<H, B, E> {
    /// Rows of `hidden` values from an encoder of the host.
    pub fn new(host: Arc<H>, encoder: E, device: Arc<B>, hidden: usize) -> Self {
        Self { host, device, encoder, hidden, requests: Vec::new(), written: Vec::new() }
    }

    /// The rows on the device: those of an earlier request, or a copy.
    fn write(&mut self, request: &HostRequest, rows: &H::Buf) -> Result<Arc<B::Buf>> {
        self.written.retain(|(_, rows)| rows.strong_count() > 0);
        let known = self.written.iter().find(|(picture, _)| *picture == request.picture);
        if let Some(rows) = known.and_then(|(_, rows)| rows.upgrade()) {
            return Ok(rows);
        }
        let mut values = vec![0.0; request.rows * self.hidden];
        self.host.read(rows, 0, &mut values)?;
        let mut buf = self.device.alloc(request.rows, self.hidden)?;
        self.device.write(&mut buf, 0, &values)?;
        let buf = Arc::new(buf);
        self.written.push((request.picture, Arc::downgrade(&buf)));
        Ok(buf)
    }
}

impl<H: Backend, B: Backend, E: VisionEncoder<H>> VisionEncoder<B> for HostEncoder<H, B, E> {
    fn merge(&self) -> usize {
        self.encoder.merge()
    }

    fn begin(&mut self, patches: &Patches) -> Result<EncodeId> {
        let id = self.encoder.begin(patches)?;
        let rows = self.encoder.rows(patches);
        self.requests.push(HostRequest { id, picture: patches.hash, rows });
        Ok(id)
    }

    fn advance(&mut self, id: EncodeId, budget: usize) -> Result<Option<Arc<B::Buf>>> {
        let Some(rows) = self.encoder.advance(id, budget)? else { return Ok(None) };
        let index = self.requests.iter().position(|request| request.id == id);
        let request = self.requests.remove(index.expect("`begin` noted every request"));
        self.write(&request, &rows).map(Some)
    }

    fn cancel(&mut self, id: EncodeId) {
        self.requests.retain(|request| request.id != id);
        self.encoder.cancel(id);
    }
}
