//! The fake target model: stores a hash at every position and derives logits from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use muse_core::contract::{
    Backend, BatchEntry, BatchInput, BlockCopy, EmbeddingAndLmHead, KvBlocks, KvGroup, LayerSpec,
    LogitsRequest, PassLimits, TargetModel, TextSpec, Token,
};
use muse_core::{Error, Result};

use super::{FakeModel, device_fault};

/// A target model without weights, on any device.
pub struct FakeTarget<B: Backend> {
    backend: Arc<B>,
    model: FakeModel,
    spec: TextSpec,
    logits: B::Buf,
    captured_hidden: B::Buf,
    row: Vec<f32>,
    fail_at: Arc<AtomicU64>,
    passes: u64,
}

impl<B: Backend> FakeTarget<B> {
    /// A target model with these KV blocks.
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
            logit_softcap: None,
            max_positions: options.max_positions,
            image_token: None,
        };
        Ok(Self {
            logits: backend.alloc(options.max_logits_rows, options.vocab)?,
            captured_hidden: backend.alloc(options.rows, 1)?,
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

/// What counts as the token of a position with this embedding: none of the vocabulary.
fn embed_token(value: f32) -> Token {
    Token(1 << 31 | value.to_bits() >> 1)
}

/// The hidden state of a position: as much of its hash as an `f32` holds exactly.
pub(super) fn hidden(hash: u64) -> f32 {
    (hash >> 40) as f32
}

impl<B: Backend> TargetModel<B> for FakeTarget<B> {
    fn spec(&self) -> &TextSpec {
        &self.spec
    }

    fn limits(&self) -> PassLimits {
        let super::FakeOptions { rows, max_logits_rows, .. } = self.model.options;
        PassLimits { max_num_batched_tokens: rows, max_logits_rows }
    }

    fn forward(&mut self, batch: &[BatchEntry<'_, B>]) -> Result<()> {
        self.passes += 1;
        if self.passes == self.fail_at.load(Ordering::Relaxed) {
            return Err(device_fault("running a pass"));
        }
        let rows: usize = batch.iter().map(|entry| entry.slice.len).sum();
        assert!(rows <= self.model.options.rows, "{rows} tokens are more than a pass holds");
        let model = self.model.clone();
        model.spend((model.options.cost.pass)(rows));
        let mut store = model.rows.lock().expect("no panic while it was held");
        let (mut row, mut requested_rows) = (0, 0);
        for entry in batch {
            if let BatchInput::Tokens(tokens) = entry.input {
                assert_eq!(tokens.len(), entry.slice.len, "a token per position");
            }
            let blocks = &entry.slice.blocks;
            for i in 0..entry.slice.len {
                let token = match entry.input {
                    BatchInput::Tokens(tokens) => tokens[i],
                    BatchInput::Embeds { buf, first_row } => {
                        let mut value = [0.0];
                        self.backend.read(buf, first_row + i, &mut value)?;
                        embed_token(value[0])
                    }
                };
                let position = entry.slice.start + i as u32;
                let hash = store.hash(blocks, model.options.reach, token, position, &[]);
                store.store(blocks, position, hash);
                self.backend.write(&mut self.captured_hidden, row, &[hidden(hash)])?;
                row += 1;
                let requested = match entry.logits {
                    LogitsRequest::None => false,
                    LogitsRequest::Last => i + 1 == entry.slice.len,
                    LogitsRequest::All => true,
                };
                if requested {
                    model.logits(hash, &mut self.row);
                    self.backend.write(&mut self.logits, requested_rows, &self.row)?;
                    requested_rows += 1;
                }
            }
        }
        Ok(())
    }

    fn logits(&self) -> &B::Buf {
        &self.logits
    }

    fn captured_hidden(&self) -> &B::Buf {
        &self.captured_hidden
    }
}

impl<B: Backend> EmbeddingAndLmHead<B> for FakeTarget<B> {
    fn embed(&self, ids: &[Token], out: &mut B::Buf) -> Result<()> {
        for (i, id) in ids.iter().enumerate() {
            self.backend.write(out, i, &[id.0 as f32])?;
        }
        Ok(())
    }

    fn lm_head(&self, _: &B::Buf, _: usize, _: &mut B::Buf) -> Result<()> {
        Err(Error::Unsupported(
            "the fake target has no LM head: draft with the fake drafter".into(),
        ))
    }
}

impl<B: Backend> KvBlocks<B> for FakeTarget<B> {
    fn copy_blocks(&mut self, copies: &[BlockCopy]) -> Result<()> {
        let mut rows = self.model.rows.lock().expect("no panic while it was held");
        rows.full.copy(KvGroup::Full, copies);
        rows.window.copy(KvGroup::Window, copies);
        Ok(())
    }

    fn save_block(&self, group: KvGroup, block: u32, out: &mut Vec<u8>) -> Result<()> {
        let rows = self.model.rows.lock().expect("no panic while it was held");
        match group {
            KvGroup::Full => rows.full.save(block, out),
            KvGroup::Window => rows.window.save(block, out),
        }
        Ok(())
    }

    fn load_block(&mut self, group: KvGroup, block: u32, bytes: &mut &[u8]) -> Result<()> {
        let mut rows = self.model.rows.lock().expect("no panic while it was held");
        match group {
            KvGroup::Full => rows.full.load(block, bytes),
            KvGroup::Window => rows.window.load(block, bytes),
        }
    }
}
