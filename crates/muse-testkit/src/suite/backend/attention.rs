//! Attention over scattered KV blocks against a softmax in `f64`.

use muse_core::contract::{Attention, Backend, KvGroup, KvShape, KvType, Mask, SeqSlice};
use muse_core::quant::{Format, q8_0};

use super::data::{Noise, Sequence, shuffled_blocks};
use super::{Subject, Wanted, assert_same_bits};

const KV_BLOCKS: u32 = 32;
const MASKS: [Mask; 7] = [
    Mask::Causal { window: None },
    Mask::Causal { window: Some(1) },
    Mask::Causal { window: Some(5) },
    Mask::Causal { window: Some(64) },
    Mask::Causal { window: Some(100) },
    Mask::DraftBlock { reach: 3 },
    Mask::DraftBlock { reach: 70 },
];

/// KV blocks of a layer, and how it is attended to.
struct AttentionCase<'a, B: Backend> {
    subject: &'a Subject<'a, B>,
    shape: KvShape,
    heads: usize,
    kv: B::Kv,
}

/// What one sequence holds: `[position, heads, head_dim]`, whole history.
struct Values {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

/// A sequence, its values, the first row that runs and how many.
type Part<'a> = (&'a Sequence, &'a Values, u32, usize);

impl<'a, B: Backend> AttentionCase<'a, B> {
    /// KV blocks whose every position holds large numbers, as KV blocks of ended sequences may.
    fn new(subject: &'a Subject<'a, B>, group: KvGroup, kind: KvType, heads: usize) -> Self {
        let shape = KvShape { group, blocks: KV_BLOCKS as usize, kv_heads: 2, head_dim: 64, kind };
        let mut kv = subject.device.alloc_kv(shape).unwrap();
        let mut everything: Vec<u32> = (0..KV_BLOCKS).collect();
        let sequence = Sequence::new(&mut everything, KV_BLOCKS as usize * 32, 0);
        let rows = KV_BLOCKS as usize * 32;
        let stale = subject.buf(rows, &vec![3e4; rows * 128]);
        subject.device.write_kv(&mut kv, &[sequence.slice(0, rows)], &stale, &stale).unwrap();
        Self { subject, shape, heads, kv }
    }

    fn values(&self, seed: u64, positions: usize) -> Values {
        let mut noise = Noise::new(seed);
        let width = self.shape.kv_heads * self.shape.head_dim;
        Values {
            q: self.subject.held(noise.values(positions * self.heads * self.shape.head_dim)),
            k: noise.storable(positions * width),
            v: noise.storable(positions * width),
        }
    }

    fn attention(&self, mask: Mask) -> Attention {
        let head_dim = self.shape.head_dim;
        Attention { heads: self.heads, head_dim, scale: 1.0 / (head_dim as f32).sqrt(), mask }
    }

    /// Rows `start .. start + rows` of each part, side by side, as `of` finds them.
    fn gather(&self, batch: &[Part<'_>], heads: usize, of: fn(&Values) -> &[f32]) -> B::Buf {
        let width = heads * self.shape.head_dim;
        let mut data = Vec::new();
        for &(_, values, start, rows) in batch {
            let start = start as usize;
            data.extend_from_slice(&of(values)[start * width..(start + rows) * width]);
        }
        self.subject.buf(data.len() / width, &data)
    }

    /// Writes K and V rows of several sequences.
    fn write(&mut self, batch: &[Part<'_>]) {
        let k = self.gather(batch, self.shape.kv_heads, |values| &values.k);
        let v = self.gather(batch, self.shape.kv_heads, |values| &values.v);
        self.subject.device.write_kv(&mut self.kv, &slices(batch), &k, &v).unwrap();
    }

    /// Writes rows of several sequences and attends with them, in one call each.
    fn step(&mut self, batch: &[Part<'_>], mask: Mask) -> Vec<f32> {
        self.write(batch);
        let q = self.gather(batch, self.heads, |values| &values.q);
        let rows = batch.iter().map(|&(.., rows)| rows).sum();
        let width = self.heads * self.shape.head_dim;
        let mut out = self.subject.zeros(rows, width);
        let attention = self.attention(mask);
        self.subject.device.attend(&q, &self.kv, &slices(batch), &attention, &mut out).unwrap();
        self.subject.read(&out, rows * width)
    }

    /// The definition, for rows `start .. start + rows`.
    fn wanted(&self, values: &Values, start: u32, rows: usize, mask: Mask) -> Vec<Wanted> {
        let end = start as usize + rows;
        let KvShape { kv_heads, head_dim: dim, .. } = self.shape;
        let row = |values: &[f32], heads: usize, position: usize, head: usize| -> Vec<f64> {
            let at = (position * heads + head) * dim;
            values[at..at + dim].iter().map(|&x| f64::from(x)).collect()
        };
        let mut out = Vec::new();
        for (t, head) in (start as usize..end).flat_map(|t| (0..self.heads).map(move |h| (t, h))) {
            let kv_head = head / (self.heads / kv_heads);
            let q = row(&values.q, self.heads, t, head);
            let keys: Vec<usize> = (0..end).filter(|&p| sees(mask, t, p)).collect();
            let scale = f64::from(self.attention(mask).scale);
            let score = |&p: &usize| {
                let k = row(&values.k, kv_heads, p, kv_head);
                q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() * scale
            };
            let logits: Vec<f64> = keys.iter().map(score).collect();
            let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = logits.iter().map(|s| (s - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            let mut sum = vec![Wanted { value: 0.0, magnitude: 0.0 }; dim];
            for (p, weight) in keys.iter().zip(&weights) {
                for (sum, v) in sum.iter_mut().zip(row(&values.v, kv_heads, *p, kv_head)) {
                    sum.value += weight / total * v;
                    // Errors of logits (themselves sums over the head) enter as exponents.
                    sum.magnitude += 8.0 * weight / total * v.abs();
                }
            }
            out.extend(sum);
        }
        out
    }
}

fn slices<'a>(batch: &[Part<'a>]) -> Vec<SeqSlice<'a>> {
    batch.iter().map(|&(sequence, _, start, rows)| sequence.slice(start, rows)).collect()
}

fn sees(mask: Mask, t: usize, p: usize) -> bool {
    match mask {
        Mask::Causal { window } => p <= t && window.is_none_or(|w| t - p < w as usize),
        Mask::DraftBlock { reach } => t.abs_diff(p) <= reach as usize,
    }
}

/// Every mask, across KV block ends, for a chunk and for single rows of several sequences.
pub fn attention_follows_the_mask<B: Backend>(subject: &Subject<'_, B>) {
    for heads in [4, 32] {
        for mask in MASKS {
            let mut case = AttentionCase::new(subject, KvGroup::Full, subject.kinds[0], heads);
            let mut free = shuffled_blocks(KV_BLOCKS, 9);
            let sequences = [150, 65, 3].map(|end| Sequence::new(&mut free, end, 0));
            let values = [150, 65, 3].map(|end| case.values(end as u64, end));
            // Histories first, then a chunk beside decoded rows.
            let [a, b, c] = [0, 1, 2].map(|i| (&sequences[i], &values[i]));
            case.step(&[(a.0, a.1, 0, 120), (b.0, b.1, 0, 64)], mask);
            let got = case.step(&[(a.0, a.1, 120, 30), (b.0, b.1, 64, 1), (c.0, c.1, 0, 3)], mask);
            let mut want = case.wanted(a.1, 120, 30, mask);
            want.extend(case.wanted(b.1, 64, 1, mask));
            want.extend(case.wanted(c.1, 0, 3, mask));
            subject.assert_close(&format!("{mask:?}, {heads} heads"), &got, &want);
        }
    }
}

/// Every cache type, with values that it stores without rounding.
pub fn attention_over_every_cache_type<B: Backend>(subject: &Subject<'_, B>) {
    let mask = Mask::Causal { window: None };
    for &kind in subject.kinds {
        let mut case = AttentionCase::new(subject, KvGroup::Full, kind, 4);
        let sequence = Sequence::new(&mut shuffled_blocks(KV_BLOCKS, 3), 200, 0);
        let values = case.values(6, 200);
        let got = case.step(&[(&sequence, &values, 0, 200)], mask);
        subject.assert_close(&format!("{kind:?}"), &got, &case.wanted(&values, 0, 200, mask));
    }
}

/// Rounding happens in the store: a row reads back its own K and V rounded.
pub fn attention_reads_values_as_stored<B: Backend>(subject: &Subject<'_, B>) {
    let round_bf16 = |x: f32| {
        let bits = x.to_bits();
        f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
    };
    let round_q8_0 = |values: &[f32]| {
        let mut out = vec![0.0; values.len()];
        for (x, out) in values.as_chunks::<32>().0.iter().zip(out.chunks_exact_mut(32)) {
            let mut block = [0; q8_0::BYTES];
            q8_0::encode(x, &mut block);
            Format::Q8_0.decode(&block, out);
        }
        out
    };
    let mask = Mask::Causal { window: None };
    for kind in [KvType::Bf16, KvType::Q8_0].into_iter().filter(|kind| subject.kinds.contains(kind))
    {
        let mut case = AttentionCase::new(subject, KvGroup::Full, kind, 4);
        let sequence = Sequence::new(&mut shuffled_blocks(KV_BLOCKS, 3), 70, 0);
        let mut noise = Noise::new(8);
        let mut noise = |count| subject.held(noise.values(count));
        let (k, v) = (noise(70 * 128), noise(70 * 128));
        let mut values = Values { q: noise(70 * 256), k, v };
        let got = case.step(&[(&sequence, &values, 0, 70)], mask);
        for stored in [&mut values.k, &mut values.v] {
            *stored = match kind {
                KvType::Bf16 => stored.iter().map(|&x| round_bf16(x)).collect(),
                _ => round_q8_0(stored),
            };
        }
        subject.assert_close(&format!("{kind:?}"), &got, &case.wanted(&values, 0, 70, mask));
    }
}

/// Any chunking and any batch composition gives the same bits.
pub fn attention_is_invariant_to_batch_and_chunks<B: Backend>(subject: &Subject<'_, B>) {
    let end = subject.walk;
    for &kind in subject.kinds {
        for mask in [Mask::Causal { window: None }, Mask::Causal { window: Some(64) }] {
            let run = |chunk: usize, batched: bool| {
                let mut case = AttentionCase::new(subject, KvGroup::Full, kind, 4);
                let mut free = shuffled_blocks(KV_BLOCKS, chunk as u64);
                let [first, other] = [end, end].map(|end| Sequence::new(&mut free, end, 0));
                let (values, others) = (case.values(1, end), case.values(2, end));
                let mut out = Vec::new();
                for start in (0..end).step_by(chunk) {
                    let rows = chunk.min(end - start);
                    let mine = (&first, &values, start as u32, rows);
                    let theirs = (&other, &others, start as u32, rows.min(3));
                    let batch = if batched { vec![theirs, mine] } else { vec![mine] };
                    let got = case.step(&batch, mask);
                    out.extend_from_slice(&got[got.len() - rows * 256..]);
                }
                out
            };
            let whole = run(end, false);
            for (chunk, batched) in [(1, false), (1, true), (7, true), (64, false), (end, true)] {
                let what = format!("{kind:?} {mask:?} in chunks of {chunk}, batched: {batched}");
                assert_same_bits(&what, &run(chunk, batched), &whole);
            }
        }
    }
}

/// A window store works with the live KV blocks alone, and gives the bits of the whole history.
pub fn returned_blocks_are_never_touched<B: Backend>(subject: &Subject<'_, B>) {
    for mask in [Mask::Causal { window: Some(64) }, Mask::DraftBlock { reach: 60 }] {
        let values = AttentionCase::new(subject, KvGroup::Window, KvType::Bf16, 4).values(5, 400);
        let run = |base: u32, chunk: usize| {
            let mut case = AttentionCase::new(subject, KvGroup::Window, KvType::Bf16, 4);
            let sequence = Sequence::new(&mut shuffled_blocks(KV_BLOCKS, 4), 400, base);
            let first = sequence.base(KvGroup::Window);
            case.write(&[(&sequence, &values, first, 390 - first as usize)]);
            case.step(&[(&sequence, &values, 390, chunk)], mask)
        };
        assert_same_bits(&format!("{mask:?}"), &run(320, 10), &run(0, 10));
        assert_same_bits(&format!("{mask:?}, one row"), &run(320, 1), &run(0, 1));
    }
}
