//! Operations that treat every row alike.

use muse_core::contract::{
    Attention, Backend, BlockTable, History, KvGroup, KvShape, Mask, Rope, SampleRow, Sampling,
    SeqSlice, Token, WeightView,
};
use muse_core::quant::Format;
use muse_core::{Result, sampler};

use super::data::{Noise, weight};
use super::{Subject, Wanted, assert_same_bits};

/// Numbers of rows that run together.
const BATCHES: [usize; 6] = [1, 2, 3, 7, 16, 33];
const MOST_ROWS: usize = 33;

/// What is written is read, at any row.
pub fn writes_read_back<B: Backend>(subject: &Subject<'_, B>) {
    let device = subject.device;
    let mut buf = subject.zeros(5, 37);
    let data = subject.noise(1, 2 * 37);
    device.write(&mut buf, 2, &data).unwrap();
    let all = subject.read(&buf, 5 * 37);
    assert!(all[..2 * 37].iter().all(|&x| x == 0.0), "rows before stay zero");
    assert_same_bits("rows written", &all[2 * 37..4 * 37], &data);
    assert!(all[4 * 37..].iter().all(|&x| x == 0.0), "rows behind stay zero");
    let mut row = vec![0.0; 37];
    device.read(&buf, 3, &mut row).unwrap();
    assert_same_bits("one row", &row, &data[37..]);
}

/// `copy` gathers rows and lays them at a column.
pub fn copies_place_rows_and_columns<B: Backend>(subject: &Subject<'_, B>) {
    let at = 24_usize.next_multiple_of(subject.tile);
    let data = subject.noise(2, 4 * 16);
    let from = subject.buf(4, &data);
    let cols = at + 16;
    let mut to = subject.zeros(5, cols);
    subject.device.copy(&from, &[3, 0, 3], &mut to, 1, at).unwrap();
    let mut want = vec![0.0; 5 * cols];
    for (i, row) in [3, 0, 3].into_iter().enumerate() {
        want[(1 + i) * cols + at..(2 + i) * cols].copy_from_slice(&data[row * 16..(row + 1) * 16]);
    }
    assert_same_bits("copied", &subject.read(&to, 5 * cols), &want);
}

/// `embed` decodes rows of the table exactly, in every format.
pub fn embeddings_are_table_rows<B: Backend>(subject: &Subject<'_, B>) {
    for &format in Format::ALL {
        // Devices may lay the one matrix that is gathered from out otherwise.
        let view = WeightView { name: "token_embd.weight", ..weight(format, 7, 256) };
        let values = view.to_f32();
        let table = subject.device.load(view).unwrap();
        let mut out = subject.zeros(5, 256);
        subject.device.embed(&table, &[Token(6), Token(0), Token(6)], &mut out, 1).unwrap();
        let got = subject.read(&out, 5 * 256);
        let mut want = vec![0.0; 5 * 256];
        for (i, id) in [6, 0, 6].into_iter().enumerate() {
            want[(1 + i) * 256..(2 + i) * 256].copy_from_slice(&values[id * 256..(id + 1) * 256]);
        }
        let want: Vec<_> = want.iter().map(|&x| exact(x)).collect();
        subject.assert_close(&format!("{format} rows"), &got, &want);
    }
}

/// `linear` in every format, for several weights at once, odd widths where a format allows them.
pub fn linear_in_every_format<B: Backend>(subject: &Subject<'_, B>) {
    for &format in Format::ALL {
        let block = format.block_values();
        let widths = [block, block * 768_usize.div_ceil(block), block * 5];
        let odd = [1, 31, 77];
        for k in widths.into_iter().chain(odd.into_iter().filter(|_| block == 1)) {
            let x = subject.noise(k as u64, MOST_ROWS * k);
            let views = [weight(format, 70, k), weight(format, 3, k)];
            let [first, second] = views.clone().map(|view| subject.device.load(view).unwrap());
            let (mut y, mut z) = (subject.zeros(MOST_ROWS, 70), subject.zeros(MOST_ROWS, 3));
            let input = subject.buf(MOST_ROWS, &x);
            let mut into = [(&first, &mut y), (&second, &mut z)];
            subject.device.linear(&input, MOST_ROWS, &mut into).unwrap();
            for (view, y) in views.iter().zip([y, z]) {
                let what = format!("{format} k {k} n {}", view.rows);
                let want = products(&x, &view.to_f32(), k);
                subject.assert_close(&what, &subject.read(&y, MOST_ROWS * view.rows), &want);
            }
        }
    }
}

fn products(x: &[f32], w: &[f32], k: usize) -> Vec<Wanted> {
    let dot = |x: &[f32], w: &[f32]| {
        let terms = x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w));
        terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()))
    };
    let rows = x.chunks_exact(k).flat_map(|x| w.chunks_exact(k).map(move |w| dot(x, w)));
    rows.map(|(value, magnitude)| Wanted { value, magnitude }).collect()
}

/// `rms_norm` with and without a weight, `head_norm` over heads side by side.
pub fn norms_by_row_and_by_head<B: Backend>(subject: &Subject<'_, B>) {
    let all = [(256, 4, 1e-5), (77, 7, 1e-8), (1, 1, 1e-5), (6656, 52, 1e-5)];
    for (cols, heads, eps) in all.into_iter().filter(|(cols, ..)| cols % subject.tile == 0) {
        let (x, w) = (subject.noise(cols as u64, 3 * cols), subject.noise(7, cols));
        let (input, weight) = (subject.buf(3, &x), subject.buf(1, &w));
        for weighted in [true, false] {
            let mut out = subject.zeros(3, cols);
            let factor = weighted.then_some(&weight);
            subject.device.rms_norm(&input, 3, factor, eps, &mut out).unwrap();
            let want = normed(&x, &if weighted { w.clone() } else { vec![1.0; cols] }, eps);
            subject.assert_close(&format!("norm of {cols}"), &subject.read(&out, 3 * cols), &want);
        }
        let dim = cols / heads;
        let (mut x_heads, weight) = (subject.buf(3, &x), subject.buf(1, &w[..dim]));
        subject.device.head_norm(&mut x_heads, 2, &weight, eps).unwrap();
        let got = subject.read(&x_heads, 3 * cols);
        let want = normed(&x[..2 * cols], &w[..dim], eps);
        subject.assert_close(&format!("{heads} heads of {dim}"), &got[..2 * cols], &want);
        if subject.tile == 1 {
            assert_same_bits("the row not asked for", &got[2 * cols..], &x[2 * cols..]);
        }
    }
}

fn normed(x: &[f32], w: &[f32], eps: f32) -> Vec<Wanted> {
    let row = |x: &[f32]| {
        let squares: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
        let factor = 1.0 / (squares / x.len() as f64 + f64::from(eps)).sqrt();
        let scaled = x.iter().zip(w).map(|(&x, &w)| f64::from(x) * factor * f64::from(w));
        scaled.map(|value| Wanted { value, magnitude: value.abs() }).collect::<Vec<_>>()
    };
    x.chunks_exact(w.len()).flat_map(row).collect()
}

/// `rope` turns pair `(j, j + dim/2)` by `position · theta^(-2j/dim)`, far positions included.
pub fn rope_turns_pairs_by_position<B: Backend>(subject: &Subject<'_, B>) {
    let all = [(64, 500_000.0), (128, 10_000.0), (10, 500_000.0), (2, 10_000.0)];
    for (head_dim, theta) in all.into_iter().filter(|(dim, _)| dim % subject.tile == 0) {
        let rope = Rope { head_dim, theta };
        let cols = 3 * head_dim;
        let x = subject.noise(head_dim as u64, 6 * cols);
        let last = subject.positions - 1;
        let middle = last / 32;
        let slices = [slice(0, 2), slice(middle, 3), slice(last, 1)];
        let mut buf = subject.buf(6, &x);
        subject.device.rope(&mut buf, &slices, &rope).unwrap();
        let want: Vec<_> = [0, 1, middle, middle + 1, middle + 2, last]
            .into_iter()
            .zip(x.chunks_exact(cols))
            .flat_map(|(position, row)| turned(row, position, &rope))
            .collect();
        subject.assert_close(&format!("{rope:?}"), &subject.read(&buf, 6 * cols), &want);
    }
}

fn turned(row: &[f32], position: u32, rope: &Rope) -> Vec<Wanted> {
    let half = rope.head_dim / 2;
    let turn = |head: &[f32]| -> Vec<Wanted> {
        (0..rope.head_dim)
            .map(|i| {
                let j = i % half;
                let exponent = -2.0 * j as f64 / rope.head_dim as f64;
                // The contract rounds frequency and angle to f32.
                let frequency = f64::from(rope.theta).powf(exponent) as f32;
                let (sin, cos) = f64::from(position as f32 * frequency).sin_cos();
                let (a, b) = (f64::from(head[j]), f64::from(head[j + half]));
                let value = if i < half { a * cos - b * sin } else { b * cos + a * sin };
                Wanted { value, magnitude: a.abs() + b.abs() }
            })
            .collect()
    };
    row.chunks_exact(rope.head_dim).flat_map(turn).collect()
}

/// `gate`, `silu_mul`, `add` and `scale_softcap`, small and large values included.
pub fn elementwise_operations<B: Backend>(subject: &Subject<'_, B>) {
    let device = subject.device;
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let (scale, cap) = (0.196_116_13_f32, 20.0);
    let factor = f64::from(scale);
    check_pairs(
        subject,
        "gate",
        |x, y, rows| device.gate(x, rows, y),
        |a, b| Wanted { value: a * sigmoid(b), magnitude: a.abs() },
    );
    check_pairs(
        subject,
        "silu_mul",
        |x, y, rows| device.silu_mul(x, rows, y),
        |a, b| Wanted { value: a * sigmoid(a) * b, magnitude: (a * b).abs() },
    );
    check_pairs(
        subject,
        "add",
        |x, y, rows| device.add(x, rows, y),
        |a, b| Wanted { value: a + b, magnitude: a.abs() + b.abs() },
    );
    let scaled = |x: &mut B::Buf, _: &B::Buf, rows| device.scale_softcap(x, rows, scale, None);
    check_pairs(subject, "scale", scaled, |a, _| Wanted {
        value: a * factor,
        magnitude: (a * factor).abs(),
    });
    let capped =
        |x: &mut B::Buf, _: &B::Buf, rows| device.scale_softcap(x, rows, scale, Some(20.0));
    check_pairs(subject, "cap", capped, |a, _| Wanted {
        value: cap * (a * factor / cap).tanh(),
        magnitude: (a * factor).abs(),
    });
}

/// Runs `op` on two matrices of tiny, plain and large rows, and compares value by value.
fn check_pairs<B: Backend>(
    subject: &Subject<'_, B>,
    what: &str,
    op: impl Fn(&mut B::Buf, &B::Buf, usize) -> Result<()>,
    want: impl Fn(f64, f64) -> Wanted,
) {
    let (scales, cols) = ([1e-4_f32, 1.0, 30.0, 200.0], 77);
    let spread = |seed| {
        let values = Noise::new(seed).values(scales.len() * cols);
        let scaled = values.iter().enumerate().map(|(i, x)| x * scales[i / cols]);
        subject.held(scaled.collect())
    };
    let (a, b) = (spread(1), spread(2));
    let (mut x, y) = (subject.buf(scales.len(), &a), subject.buf(scales.len(), &b));
    op(&mut x, &y, scales.len()).unwrap();
    let want: Vec<_> = a.iter().zip(&b).map(|(&a, &b)| want(f64::from(a), f64::from(b))).collect();
    subject.assert_close(what, &subject.read(&x, a.len()), &want);
}

/// `sample` appends what the sampler defines, row by row, in the order of its rows.
pub fn samples_follow_the_sampler<B: Backend>(subject: &Subject<'_, B>) {
    let vocab = 1000;
    let data = subject.noise(5, 4 * vocab);
    let logits = subject.buf(4, &data);
    let greedy = Sampling::default();
    let drawn = Sampling { temperature: 1.3, top_k: 40, top_p: 0.9, seed: 11, ..greedy.clone() };
    let history = History::default();
    let rows: Vec<_> = [(2, &greedy, None), (0, &drawn, Some(3)), (3, &drawn, None)]
        .into_iter()
        .map(|(row, sampling, logprobs)| SampleRow {
            row,
            sampling,
            history: &history,
            drafted: &[],
            mask: None,
            position: 17 + row as u32,
            logprobs,
        })
        .collect();
    let mut out = Vec::new();
    subject.device.sample(&logits, &rows[..1], &mut out).unwrap();
    subject.device.sample(&logits, &rows[1..], &mut out).unwrap();
    let slice = |row: usize| &data[row * vocab..(row + 1) * vocab];
    let want: Vec<_> = rows.iter().map(|row| sampler::sample(slice(row.row), row)).collect();
    assert_eq!(out, want);
}

/// Every row operation gives a row the same bits alone and among 2, 3, 7, 16 and 33 rows.
pub fn row_operations_are_batch_invariant<B: Backend>(subject: &Subject<'_, B>) {
    let device = subject.device;
    let cols = 256;
    for format in [Format::F32, Format::F16, Format::Bf16, Format::Q8_0, Format::Q4K] {
        let weight = device.load(weight(format, 70, cols)).unwrap();
        is_batch_invariant(subject, &format!("linear {format}"), cols, 70, |x, rows, out, _| {
            device.linear(x, rows, &mut [(&weight, out)]).unwrap();
        });
    }
    let (weight, head) = (subject.buf(1, &[1.5; 256]), subject.buf(1, &[0.5; 64]));
    is_batch_invariant(subject, "rms_norm", cols, cols, |x, rows, out, _| {
        device.rms_norm(x, rows, Some(&weight), 1e-5, out).unwrap();
    });
    is_batch_invariant(subject, "rms_norm, rope, silu_mul", cols, cols, |x, rows, out, start| {
        device.rms_norm(x, rows, None, 1e-5, out).unwrap();
        device.head_norm(out, rows, &head, 1e-5).unwrap();
        let rope = Rope { head_dim: 64, theta: 10_000.0 };
        device.rope(out, &[slice(start, rows)], &rope).unwrap();
        device.silu_mul(out, rows, x).unwrap();
        device.gate(out, rows, x).unwrap();
        device.add(out, rows, x).unwrap();
        device.scale_softcap(out, rows, 3.0, Some(2.0)).unwrap();
    });
}

/// Operations on no rows are none: they neither fail nor write.
pub fn no_rows_change_nothing<B: Backend>(subject: &Subject<'_, B>) {
    let device = subject.device;
    let before = subject.noise(4, 2 * 64);
    let [mut x, y] = [(); 2].map(|()| subject.buf(2, &before));
    let by = subject.buf(1, &before[..64]);
    let table = WeightView { name: "token_embd.weight", ..weight(Format::F32, 7, 64) };
    let (table, weight) =
        (device.load(table).unwrap(), device.load(weight(Format::F32, 64, 64)).unwrap());
    let (kind, group) = (subject.kinds[0], KvGroup::Full);
    let shape = KvShape { group, blocks: 1, kv_heads: 1, head_dim: 64, kind };
    let mut kv = device.alloc_kv(shape).unwrap();
    let mask = Mask::Causal { window: None };
    let attention = Attention { heads: 1, head_dim: 64, scale: 1.0, mask };
    device.copy(&y, &[], &mut x, 1, 0).unwrap();
    device.embed(&table, &[], &mut x, 1).unwrap();
    device.linear(&y, 0, &mut [(&weight, &mut x)]).unwrap();
    device.rms_norm(&y, 0, Some(&by), 1e-5, &mut x).unwrap();
    device.head_norm(&mut x, 0, &by, 1e-5).unwrap();
    device.gate(&mut x, 0, &y).unwrap();
    device.silu_mul(&mut x, 0, &y).unwrap();
    device.add(&mut x, 0, &y).unwrap();
    device.scale_softcap(&mut x, 0, 2.0, None).unwrap();
    for slices in [&[slice(3, 0)][..], &[]] {
        device.rope(&mut x, slices, &Rope { head_dim: 64, theta: 1e4 }).unwrap();
        device.write_kv(&mut kv, slices, &x, &y).unwrap();
        device.attend(&y, &kv, slices, &attention, &mut x).unwrap();
    }
    device.sample(&y, &[], &mut Vec::new()).unwrap();
    assert_same_bits("no rows", &subject.read(&x, 2 * 64), &before);
}

/// Runs `op(x, rows, out, first_row)` on rows alone, then in batches, and compares bits.
fn is_batch_invariant<B: Backend>(
    subject: &Subject<'_, B>,
    what: &str,
    cols: usize,
    out_cols: usize,
    op: impl Fn(&B::Buf, usize, &mut B::Buf, u32),
) {
    let x = subject.noise(3, MOST_ROWS * cols);
    let run = |start: usize, rows: usize| {
        let input = subject.buf(rows, &x[start * cols..(start + rows) * cols]);
        let mut out = subject.zeros(rows, out_cols);
        op(&input, rows, &mut out, start as u32);
        subject.read(&out, rows * out_cols)
    };
    let alone: Vec<f32> = (0..MOST_ROWS).flat_map(|row| run(row, 1)).collect();
    for batch in BATCHES {
        for start in [0, MOST_ROWS - batch] {
            let want = &alone[start * out_cols..(start + batch) * out_cols];
            assert_same_bits(&format!("{what} among {batch}"), &run(start, batch), want);
        }
    }
}

fn slice(start: u32, rows: usize) -> SeqSlice<'static> {
    SeqSlice { start, len: rows, blocks: BlockTable::default() }
}

fn exact(x: f32) -> Wanted {
    Wanted { value: f64::from(x), magnitude: f64::from(x.abs()) }
}
