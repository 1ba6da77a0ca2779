//! The forward pass of the text model over the tokens of all batch entries.

use super::Model;
use super::weights::{Layer, head_shape};
use crate::Result;
use crate::contract::{
    Backend, BatchEntry, BatchInput, LogitsRequest, Mask, ModelSizes, SeqSlice, TextSpec, recycle,
};

/// Buffers of a pass, `max_num_batched_tokens` rows each.
pub(super) struct Scratch<B: Backend> {
    /// The residual stream. `[tokens, hidden]`
    x: B::Buf,
    /// Output of a norm. `[tokens, hidden]`
    normed: B::Buf,
    /// Output of a sub-layer before its post norm. `[tokens, hidden]`
    branch: B::Buf,
    /// `[tokens, heads · head_dim]`, as are `gate` and `attn_output`.
    q: B::Buf,
    /// `[tokens, kv_heads · head_dim]`, as is `v`.
    k: B::Buf,
    v: B::Buf,
    gate: B::Buf,
    /// Output of the attention before its projection.
    attn_output: B::Buf,
    /// `[tokens, ffn]`, as is `up`.
    ffn_gate: B::Buf,
    up: B::Buf,
    /// Rows of a copy.
    copy_rows: Vec<u32>,
    /// Rows of the batch whose logits are requested.
    logits_rows: Vec<u32>,
}

impl<B: Backend> Scratch<B> {
    pub(super) fn new(backend: &B, spec: &TextSpec, sizes: &ModelSizes) -> Result<Self> {
        let bufs = widths(spec).map(|cols| backend.alloc(sizes.max_num_batched_tokens, cols));
        let [x, normed, branch, q, gate, attn_output, k, v, ffn_gate, up] = bufs;
        Ok(Self {
            x: x?,
            normed: normed?,
            branch: branch?,
            q: q?,
            k: k?,
            v: v?,
            gate: gate?,
            attn_output: attn_output?,
            ffn_gate: ffn_gate?,
            up: up?,
            copy_rows: Vec::with_capacity(sizes.max_num_batched_tokens),
            logits_rows: Vec::with_capacity(sizes.max_logits_rows),
        })
    }
}

/// Columns of the buffers of a pass.
fn widths(spec: &TextSpec) -> [usize; 10] {
    let TextSpec { hidden, ffn, heads, kv_heads, head_dim, .. } = *spec;
    let (query, key) = (heads * head_dim, kv_heads * head_dim);
    [hidden, hidden, hidden, query, query, query, key, key, ffn, ffn]
}

/// Bytes of the buffers beside weights and KV blocks: those of a pass, the logits and the captured
/// hidden states.
pub(super) fn scratch_bytes(spec: &TextSpec, sizes: &ModelSizes, captured_layers: usize) -> usize {
    let row = widths(spec).iter().sum::<usize>() + captured_layers * spec.hidden;
    size_of::<f32>() * (sizes.max_num_batched_tokens * row + sizes.max_logits_rows * spec.vocab)
}

impl<B: Backend> Model<B> {
    pub(super) fn run(&mut self, batch: &[BatchEntry<'_, B>]) -> Result<()> {
        let mut slices: Vec<SeqSlice<'_>> = recycle(std::mem::take(&mut self.slices));
        slices.extend(batch.iter().map(|entry| entry.slice));
        let rows = SeqSlice::total_len(&slices);
        self.find_logits_rows(batch, rows);

        self.embed_inputs(batch, rows)?;
        for index in 0..self.spec.layers.len() {
            self.attention(index, &slices, rows)?;
            self.feed_forward(index, rows)?;
            self.capture_hidden(index, rows)?;
        }
        self.slices = recycle(slices);
        self.compute_logits()
    }

    fn find_logits_rows(&mut self, batch: &[BatchEntry<'_, B>], rows: usize) {
        let ModelSizes { max_num_batched_tokens, max_logits_rows, .. } = self.sizes;
        assert!(
            rows <= max_num_batched_tokens,
            "a pass of {rows} tokens, the model was built for {max_num_batched_tokens}"
        );
        let requested = &mut self.scratch.logits_rows;
        requested.clear();
        let mut first = 0;
        for entry in batch {
            let end = first + entry.slice.len as u32;
            match entry.logits {
                LogitsRequest::None => {}
                LogitsRequest::Last => requested.extend(first.max(end.saturating_sub(1))..end),
                LogitsRequest::All => requested.extend(first..end),
            }
            first = end;
        }
        let count = requested.len();
        assert!(
            count <= max_logits_rows,
            "{count} logits rows, the model was built for {max_logits_rows}"
        );
    }

    /// Embeddings of tokens go through the embedding norm, finished embeddings do not.
    fn embed_inputs(&mut self, batch: &[BatchEntry<'_, B>], rows: usize) -> Result<()> {
        let Self { backend, spec, weights, scratch, .. } = self;
        let mut first = 0;
        for entry in batch {
            if let BatchInput::Tokens(ids) = entry.input {
                assert_eq!(
                    ids.len(),
                    entry.slice.len,
                    "an entry has a token for each of its positions"
                );
                backend.embed(&weights.embed, ids, &mut scratch.branch, first)?;
            }
            first += entry.slice.len;
        }
        backend.rms_norm(&scratch.branch, rows, None, spec.norm_eps, &mut scratch.x)?;
        first = 0;
        for entry in batch {
            if let BatchInput::Embeds { buf, first_row } = entry.input {
                let Scratch { x, copy_rows, .. } = &mut *scratch;
                copy_rows.clear();
                copy_rows.extend((first_row..first_row + entry.slice.len).map(|row| row as u32));
                backend.copy(buf, copy_rows, x, first, 0)?;
            }
            first += entry.slice.len;
        }
        Ok(())
    }

    /// `x += rms(Wo (attend(q, k, v) · sigmoid(gate))) · post norm`
    fn attention(&mut self, index: usize, slices: &[SeqSlice<'_>], rows: usize) -> Result<()> {
        let Self { backend, spec, weights, kv, scratch, .. } = self;
        let layer: &Layer<B> = &weights.layers[index];
        let Scratch { x, normed, branch, q, k, v, gate, attn_output, .. } = scratch;
        backend.rms_norm(x, rows, Some(&layer.attn_norm), spec.norm_eps, normed)?;
        let heads = &layer.heads;
        let into = &mut [
            (&heads.q, &mut *q),
            (&heads.k, &mut *k),
            (&heads.v, &mut *v),
            (&layer.gate, &mut *gate),
        ];
        backend.linear(normed, rows, into)?;
        let mask = Mask::Causal { window: spec.layers[index].window };
        let shape = head_shape(spec, index);
        heads.attend(backend, &shape, mask, slices, [q, k, v, attn_output], &mut kv[index])?;
        backend.gate(attn_output, rows, gate)?;
        backend.linear(attn_output, rows, &mut [(&heads.output, &mut *branch)])?;
        backend.rms_norm(branch, rows, Some(&layer.post_attn_norm), spec.post_norm_eps, normed)?;
        backend.add(x, rows, normed)
    }

    /// `x += rms(Wdown (silu(Wgate h) · Wup h)) · post norm`
    fn feed_forward(&mut self, index: usize, rows: usize) -> Result<()> {
        let Self { backend, spec, weights, scratch, .. } = self;
        let layer: &Layer<B> = &weights.layers[index];
        let Scratch { x, normed, branch, ffn_gate, up, .. } = scratch;
        backend.rms_norm(x, rows, Some(&layer.ffn_norm), spec.norm_eps, normed)?;
        layer.ffn.run(backend, normed, rows, [ffn_gate, up], branch)?;
        backend.rms_norm(branch, rows, Some(&layer.post_ffn_norm), spec.post_norm_eps, normed)?;
        backend.add(x, rows, normed)
    }

    fn capture_hidden(&mut self, index: usize, rows: usize) -> Result<()> {
        let Self { backend, spec, captured_layers, scratch, captured_hidden, .. } = self;
        let Scratch { x, copy_rows, .. } = scratch;
        for (slot, _) in captured_layers.iter().enumerate().filter(|(_, layer)| **layer == index) {
            copy_rows.clear();
            copy_rows.extend(0..rows as u32);
            backend.copy(x, copy_rows, captured_hidden, 0, slot * spec.hidden)?;
        }
        Ok(())
    }

    /// Final norm and LM head, for the rows with requested logits only.
    fn compute_logits(&mut self) -> Result<()> {
        let Self { backend, spec, weights, scratch, logits, .. } = self;
        let Scratch { x, normed, branch, logits_rows, .. } = scratch;
        let rows = logits_rows.len();
        if rows == 0 {
            return Ok(());
        }
        backend.copy(x, logits_rows, branch, 0, 0)?;
        backend.rms_norm(branch, rows, Some(&weights.output_norm), spec.norm_eps, normed)?;
        backend.linear(normed, rows, &mut [(&weights.output, &mut *logits)])?;
        backend.scale_softcap(logits, rows, spec.logit_scale, spec.logit_softcap)
    }
}
