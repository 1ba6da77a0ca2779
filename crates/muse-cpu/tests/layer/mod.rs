//! One decoder layer and an LM head with every operation, wide enough to be shared among threads.

use muse_core::Result;
use muse_core::contract::{
    Attention, Backend, BlockTable, History, KvGroup, KvShape, KvType, Mask, Rope, SampleRow,
    Sampled, Sampling, SeqSlice, Token, WeightView,
};
use muse_core::quant::Format;
use muse_cpu::{Buf, Cpu, Kv, Weight};

const HIDDEN: usize = 512;
const HEAD_DIM: usize = 64;
const KV_WIDTH: usize = 2 * HEAD_DIM;
const VOCAB: usize = 3000;
const EPS: f32 = 1e-5;

/// The largest number of tokens of a pass.
pub(crate) const ROWS: usize = 150;

pub(crate) struct Layer {
    cpu: Cpu,
    embedding: Weight,
    /// q, k, v, gate, output, up, LM head.
    weights: [Weight; 7],
    kv: Kv,
    norm: Buf,
    head_norm: Buf,
    x: Buf,
    h: Buf,
    q: Buf,
    k: Buf,
    v: Buf,
    gate: Buf,
    out: Buf,
    captured_hidden: Buf,
    logits: Buf,
    sampling: Sampling,
    history: History,
    sampled: Vec<Sampled>,
}

impl Layer {
    pub(crate) fn new(cpu: Cpu, format: Format) -> Result<Self> {
        let load = |rows: usize, cols: usize| {
            let noise =
                |i: usize| (i as u32).wrapping_mul(2_654_435_761).wrapping_mul(i as u32 | 1);
            let values: Vec<f32> =
                (0..rows * cols).map(|i| (noise(i) >> 16) as f32 / 500_000.0 - 0.065).collect();
            let bytes = match format {
                Format::Bf16 => {
                    values.iter().flat_map(|x| x.to_bits().to_le_bytes()[2..].to_vec()).collect()
                }
                Format::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>(),
                other => panic!("no test values in {other}"),
            };
            cpu.load(WeightView { name: "test", format, rows, cols, bytes: bytes.into() })
        };
        let buf = |cols| cpu.alloc(ROWS, cols);
        let shape = KvShape {
            group: KvGroup::Full,
            blocks: 4,
            kv_heads: KV_WIDTH / HEAD_DIM,
            head_dim: HEAD_DIM,
            kind: KvType::Bf16,
        };
        let mut layer = Self {
            embedding: load(VOCAB, HIDDEN)?,
            weights: [
                load(HIDDEN, HIDDEN)?,
                load(KV_WIDTH, HIDDEN)?,
                load(KV_WIDTH, HIDDEN)?,
                load(HIDDEN, HIDDEN)?,
                load(HIDDEN, HIDDEN)?,
                load(HIDDEN, HIDDEN)?,
                load(VOCAB, HIDDEN)?,
            ],
            kv: cpu.alloc_kv(shape)?,
            norm: cpu.alloc(1, HIDDEN)?,
            head_norm: cpu.alloc(1, HEAD_DIM)?,
            x: buf(HIDDEN)?,
            h: buf(HIDDEN)?,
            q: buf(HIDDEN)?,
            k: buf(KV_WIDTH)?,
            v: buf(KV_WIDTH)?,
            gate: buf(HIDDEN)?,
            out: buf(HIDDEN)?,
            captured_hidden: buf(2 * HIDDEN)?,
            logits: buf(VOCAB)?,
            sampling: Sampling::default(),
            history: History::default(),
            sampled: Vec::with_capacity(ROWS),
            cpu,
        };
        layer.cpu.write(&mut layer.norm, 0, &[1.5; HIDDEN])?;
        layer.cpu.write(&mut layer.head_norm, 0, &[3.0; HEAD_DIM])?;
        Ok(layer)
    }

    /// Runs these tokens at positions from `start`.
    pub(crate) fn run(&mut self, tokens: &[Token], start: u32) -> Result<()> {
        let Self { cpu, embedding, weights, kv, norm, head_norm, x, h, q, k, v, .. } = self;
        let Self { gate, out, captured_hidden, logits, sampling, history, sampled, .. } = self;
        let [wq, wk, wv, wg, wo, w_up, w_lm_head] = &*weights;
        let rows = tokens.len();
        let blocks = BlockTable { full: &[2, 0, 3], window: &[], window_base: 0 };
        let slices = [SeqSlice { start, len: rows, blocks }];
        let rope = Rope { head_dim: HEAD_DIM, theta: 10_000.0 };
        let mask = Mask::Causal { window: Some(100) };
        let attention =
            Attention { heads: HIDDEN / HEAD_DIM, head_dim: HEAD_DIM, scale: 0.125, mask };
        cpu.embed(embedding, tokens, x, 0)?;
        cpu.rms_norm(x, rows, Some(norm), EPS, h)?;
        cpu.linear(h, rows, &mut [(wq, q), (wk, k), (wv, v), (wg, gate)])?;
        cpu.head_norm(q, rows, head_norm, EPS)?;
        cpu.head_norm(k, rows, head_norm, EPS)?;
        cpu.rope(q, &slices, &rope)?;
        cpu.rope(k, &slices, &rope)?;
        cpu.write_kv(kv, &slices, k, v)?;
        cpu.attend(q, kv, &slices, &attention, out)?;
        cpu.gate(out, rows, gate)?;
        cpu.linear(out, rows, &mut [(wo, h)])?;
        cpu.rms_norm(h, rows, None, EPS, out)?;
        cpu.add(x, rows, out)?;
        cpu.linear(x, rows, &mut [(wq, gate), (w_up, h)])?;
        cpu.silu_mul(gate, rows, h)?;
        cpu.add(x, rows, gate)?;
        let last = [rows as u32 - 1];
        cpu.copy(x, &last, captured_hidden, 0, HIDDEN)?;
        cpu.linear(x, rows, &mut [(w_lm_head, logits)])?;
        cpu.scale_softcap(logits, rows, 0.5, Some(20.0))?;
        let row = |row| SampleRow {
            row,
            sampling,
            history,
            drafted: &[],
            mask: None,
            position: start + row as u32,
            logprobs: None,
        };
        sampled.clear();
        cpu.sample(logits, &[row(0), row(rows - 1)], sampled)
    }

    /// The logits and the sampled tokens of the last pass.
    pub(crate) fn results(&self, rows: usize) -> (Vec<f32>, Vec<Token>) {
        let mut logits = vec![0.0; rows * VOCAB];
        self.cpu.read(&self.logits, 0, &mut logits).expect("read");
        (logits, self.sampled.iter().map(|sampled| sampled.token).collect())
    }
}

/// Some tokens.
pub(crate) fn tokens(n: usize) -> Vec<Token> {
    (0..n as u32).map(|i| Token(i * 37 % VOCAB as u32)).collect()
}
