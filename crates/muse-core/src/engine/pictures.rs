//! Pictures of prompts: they are encoded in slices beside the steps while their sequences wait, and
//! their rows are held until the prompt has run.

use std::sync::Arc;
use std::time::Duration;

use super::sequence::Sequence;
use crate::contract::{Backend, EncodeId, SeqId, VisionEncoder};
use crate::{Error, Result};

/// Rows of the first slice of an engine: little work, from whose time the next slices follow.
const FIRST_BUDGET: usize = 16;
/// A slice is at most so many times as large as the one before.
const MAX_GROWTH: f64 = 4.0;

/// The vision encoder, and the pictures of sequences that have not run them yet.
pub(super) struct Pictures<B: Backend> {
    encoder: Option<Box<dyn VisionEncoder<B>>>,
    /// In the order in which they were begun.
    held: Vec<HeldPicture<B>>,
    /// Rows of the next slice.
    budget: usize,
}

/// A picture of a sequence.
struct HeldPicture<B: Backend> {
    seq: SeqId,
    /// Its number in the prompt.
    index: usize,
    state: PictureState<B>,
}

enum PictureState<B: Backend> {
    Encoding(EncodeId),
    Encoded(Arc<B::Buf>),
}

impl<B: Backend> HeldPicture<B> {
    fn encoding(&self) -> Option<EncodeId> {
        match self.state {
            PictureState::Encoding(id) => Some(id),
            PictureState::Encoded(_) => None,
        }
    }
}

impl<B: Backend> Pictures<B> {
    pub(super) fn new(encoder: Option<Box<dyn VisionEncoder<B>>>) -> Self {
        Self { encoder, held: Vec::new(), budget: FIRST_BUDGET }
    }

    /// Whether no picture is being encoded.
    pub(super) fn is_idle(&self) -> bool {
        self.held.iter().all(|held| held.encoding().is_none())
    }

    /// Whether a picture of the sequence is being encoded.
    pub(super) fn is_encoding(&self, seq: SeqId) -> bool {
        self.held.iter().any(|held| held.seq == seq && held.encoding().is_some())
    }

    /// Pictures of all other sequences.
    pub(super) fn held_by_others(&self, seq: SeqId) -> usize {
        self.held.iter().filter(|held| held.seq != seq).count()
    }

    /// Begins to encode the pictures of a sequence that are not in the cache up to `cached`
    /// positions. Returns whether all of them are encoded.
    ///
    /// # Errors
    /// [`Error::Invalid`] and [`Error::Unsupported`] for a picture that the encoder does not take.
    pub(super) fn begin(&mut self, seq: &Sequence, cached: usize) -> Result<bool> {
        let Some(encoder) = &mut self.encoder else { return Ok(true) };
        for (index, picture) in seq.pictures.iter().enumerate() {
            let known = self.held.iter().any(|held| held.seq == seq.id && held.index == index);
            if picture.positions.end > cached && !known {
                let state = PictureState::Encoding(encoder.begin(&picture.patches)?);
                self.held.push(HeldPicture { seq: seq.id, index, state });
            }
        }
        Ok(!self.is_encoding(seq.id))
    }

    /// Encodes a slice of the picture that was begun first, in about `target` time. Returns the
    /// sequence whose picture cannot be encoded, with the error.
    ///
    /// # Errors
    /// [`Error::Device`] when the device fails.
    pub(super) fn advance(
        &mut self,
        target: Duration,
        now: &dyn Fn() -> Duration,
    ) -> Result<Option<(SeqId, Error)>> {
        let Some(encoder) = &mut self.encoder else { return Ok(None) };
        let encoding = self.held.iter_mut().find_map(|held| held.encoding().map(|id| (held, id)));
        let Some((held, id)) = encoding else { return Ok(None) };
        let began = now();
        match encoder.advance(id, self.budget) {
            Ok(Some(rows)) => held.state = PictureState::Encoded(rows),
            // The time of a finished picture is that of less than a slice.
            Ok(None) => {
                let took = now().saturating_sub(began).as_secs_f64();
                let growth = (target.as_secs_f64() / took).min(MAX_GROWTH);
                self.budget = ((self.budget as f64 * growth) as usize).max(1);
            }
            Err(error @ Error::Device { .. }) => return Err(error),
            Err(error) => return Ok(Some((held.seq, error))),
        }
        Ok(None)
    }

    /// The rows of a picture of a sequence.
    ///
    /// # Panics
    /// If they are not encoded.
    pub(super) fn rows(&self, seq: SeqId, index: usize) -> &B::Buf {
        let held = self.held.iter().find(|held| held.seq == seq && held.index == index);
        match held.map(|held| &held.state) {
            Some(PictureState::Encoded(rows)) => rows,
            _ => panic!("picture {index} of sequence {} runs before it is encoded", seq.0),
        }
    }

    /// Drops the pictures of a sequence: it ended, or they have run.
    pub(super) fn release(&mut self, seq: SeqId) {
        let Some(encoder) = &mut self.encoder else { return };
        self.held.retain(|held| {
            if held.seq == seq
                && let Some(id) = held.encoding()
            {
                encoder.cancel(id);
            }
            held.seq != seq
        });
    }

    /// Drops everything without asking the encoder, whose device has failed.
    pub(super) fn clear(&mut self) {
        self.held.clear();
    }
}
