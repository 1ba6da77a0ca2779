//! The fake target: stores a hash a row and scores tokens by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use muse_core::contract::{
    Backend, Head, LayerSpec, PageCopy, PageGroup, Pages, Rows, Scores, Span, Target, TextSpec,
    Token,
};
use muse_core::{Error, Result};

use super::{FakeModel, device_fault};

/// A target without weights. Runs on any device.
pub struct FakeTarget<B: Backend> {
    backend: Arc<B>,
    model: FakeModel,
    spec: TextSpec,
    scores: B::Buf,
    taps: B::Buf,
    row: Vec<f32>,
    fail_at: Arc<AtomicU64>,
    passes: u64,
}

impl<B: Backend> FakeTarget<B> {
    /// A target of this model.
    pub fn new(backend: Arc<B>, model: FakeModel) -> Result<Self> {
        let options = model.options;
        let window = Some(options.reach + 1);
        let spec = TextSpec {
            hidden: 1,
            ffn: 1,
            heads: 1,
            kv_heads: 1,
            head_dim: 1,
            vocab: options.vocab,
            layers: [None, window].map(|window| LayerSpec { window, rope: false }).into(),
            norm_eps: 1e-5,
            post_norm_eps: 1e-5,
            rope_theta: 1e4,
            logit_scale: 1.0,
            logit_cap: None,
            max_positions: options.max_positions,
            image_token: None,
        };
        Ok(Self {
            scores: backend.alloc(options.score_rows, options.vocab)?,
            taps: backend.alloc(options.rows, 1)?,
            row: vec![0.0; options.vocab],
            backend,
            model,
            spec,
            fail_at: Arc::default(),
            passes: 0,
        })
    }

    /// Set to `n` to make the `n`-th pass fail, counted from 1.
    pub fn fail_at(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.fail_at)
    }
}

/// What a row shows the drafter: as much of its hash as an `f32` holds exactly.
pub(super) fn tap(hash: u64) -> f32 {
    (hash >> 40) as f32
}

impl<B: Backend> Target<B> for FakeTarget<B> {
    fn spec(&self) -> &TextSpec {
        &self.spec
    }

    fn limits(&self) -> (usize, usize) {
        (self.model.options.rows, self.model.options.score_rows)
    }

    fn forward(&mut self, batch: &[Span<'_, B>]) -> Result<()> {
        self.passes += 1;
        if self.passes == self.fail_at.load(Ordering::Relaxed) {
            return Err(device_fault("running a pass"));
        }
        let rows: usize = batch.iter().map(|span| span.place.rows).sum();
        assert!(rows <= self.model.options.rows, "{rows} rows are more than a pass holds");
        let model = self.model.clone();
        model.spend((model.options.cost.pass)(rows));
        let mut store = model.rows.lock().expect("no panic while it was held");
        let (mut row, mut scored) = (0, 0);
        for span in batch {
            let Rows::Tokens(tokens) = span.rows else {
                return Err(Error::Unsupported("the fake target takes tokens only".into()));
            };
            assert_eq!(tokens.len(), span.place.rows, "a token a row");
            let pages = &span.place.pages;
            for (i, &token) in tokens.iter().enumerate() {
                let position = span.place.start + i as u32;
                let hash = store.hash(pages, model.options.reach, token, position, &[]);
                store.store(pages, position, hash);
                self.backend.write(&mut self.taps, row, &[tap(hash)])?;
                row += 1;
                let asked = match span.scores {
                    Scores::None => false,
                    Scores::Last => i + 1 == tokens.len(),
                    Scores::All => true,
                };
                if asked {
                    model.scores(hash, &mut self.row);
                    self.backend.write(&mut self.scores, scored, &self.row)?;
                    scored += 1;
                }
            }
        }
        Ok(())
    }

    fn scores(&self) -> &B::Buf {
        &self.scores
    }

    fn taps(&self) -> &B::Buf {
        &self.taps
    }
}

impl<B: Backend> Head<B> for FakeTarget<B> {
    fn embed(&self, ids: &[Token], out: &mut B::Buf) -> Result<()> {
        for (i, id) in ids.iter().enumerate() {
            self.backend.write(out, i, &[id.0 as f32])?;
        }
        Ok(())
    }

    fn unembed(&self, _: &B::Buf, _: usize, _: &mut B::Buf) -> Result<()> {
        Err(Error::Unsupported("the fake target has no head: draft with the fake drafter".into()))
    }
}

impl<B: Backend> Pages<B> for FakeTarget<B> {
    fn copy_pages(&mut self, copies: &[PageCopy]) -> Result<()> {
        let mut rows = self.model.rows.lock().expect("no panic while it was held");
        rows.full.copy(PageGroup::Full, copies);
        rows.window.copy(PageGroup::Window, copies);
        Ok(())
    }

    fn save_page(&self, group: PageGroup, page: u32, out: &mut Vec<u8>) -> Result<()> {
        let rows = self.model.rows.lock().expect("no panic while it was held");
        match group {
            PageGroup::Full => rows.full.save(page, out),
            PageGroup::Window => rows.window.save(page, out),
        }
        Ok(())
    }

    fn load_page(&mut self, group: PageGroup, page: u32, bytes: &mut &[u8]) -> Result<()> {
        let mut rows = self.model.rows.lock().expect("no panic while it was held");
        match group {
            PageGroup::Full => rows.full.load(page, bytes),
            PageGroup::Window => rows.window.load(page, bytes),
        }
    }
}
