//! The operations of the vision tower against their definitions in `f64`.

use muse_core::contract::{
    BlockTable, KV_BLOCK_SIZE, KvGroup, KvShape, RangeQueries, Rope, SeqSlice, VisionOps,
};

use super::data::Noise;
use super::{Subject, Wanted, assert_same_bits};

/// `layer_norm` and `add_bias` for each row.
pub fn layer_norms_and_biases<B: VisionOps>(subject: &Subject<'_, B>) {
    for (cols, eps) in [(96, 1e-5), (77, 1e-3), (1536, 1e-5)] {
        let x: Vec<f32> = subject.noise(cols as u64, 3 * cols).iter().map(|x| x + 0.5).collect();
        let (w, b) = (subject.noise(7, cols), subject.noise(8, cols));
        let (mut input, mut out) = (subject.buf(3, &x), subject.zeros(3, cols));
        let (weight, bias) = (subject.buf(1, &w), subject.buf(1, &b));
        subject.device.layer_norm(&input, 3, &weight, &bias, eps, &mut out).unwrap();
        let row = |x: &[f32]| {
            let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64;
            let squares = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>();
            let deviation = (squares / x.len() as f64 + f64::from(eps)).sqrt();
            let values = x.iter().zip(&w).zip(&b).map(|((&x, &w), &b)| {
                let scaled = (f64::from(x) - mean) / deviation * f64::from(w);
                let value = scaled + f64::from(b);
                Wanted { value, magnitude: 1.0 + scaled.abs() + f64::from(b.abs()) }
            });
            values.collect::<Vec<_>>()
        };
        let want: Vec<_> = x.chunks_exact(cols).flat_map(row).collect();
        subject.assert_close(&format!("norm of {cols}"), &subject.read(&out, 3 * cols), &want);
        subject.device.add_bias(&mut input, 2, &bias).unwrap();
        let biased = x[..2 * cols].iter().zip(b.iter().cycle()).map(|(x, b)| x + b);
        let want: Vec<f32> = biased.chain(x[2 * cols..].iter().copied()).collect();
        assert_same_bits("bias on two rows", &subject.read(&input, 3 * cols), &want);
    }
}

/// `gelu` is the exact one, with and without a bias.
pub fn gelu_is_the_exact_one<B: VisionOps>(subject: &Subject<'_, B>) {
    // erf(1/√2) = 0.6826894921, erf(1/2) = 0.5204998778, erf(√2) = 0.9544997361: tables of erf.
    let known = [
        (0.0, 0.0),
        (1.0, 0.841_344_746_1),
        (-1.0, -0.158_655_253_9),
        (0.5_f32.sqrt(), 0.537_577_887_0),
        (2.0, 1.954_499_736_1),
        (-2.0, -0.045_500_263_9),
        (30.0, 30.0),
        (-30.0, 0.0),
    ];
    let x: Vec<f32> = known.iter().map(|(x, _)| *x).collect();
    let want: Vec<_> = known
        .iter()
        .map(|&(x, value)| Wanted { value, magnitude: f64::from(x.abs()).max(1.0) })
        .collect();
    let cols = x.len();
    let mut plain = subject.buf(1, &x);
    subject.device.gelu(&mut plain, 1, None).unwrap();
    subject.assert_close("without a bias", &subject.read(&plain, cols), &want);
    let bias = subject.buf(1, &[0.25; 8]);
    let less: Vec<f32> = x.iter().map(|x| x - 0.25).collect();
    let mut biased = subject.buf(1, &less);
    subject.device.gelu(&mut biased, 1, Some(&bias)).unwrap();
    subject.assert_close("with a bias", &subject.read(&biased, cols), &want);
}

/// `rope_2d` turns the first half of the pairs by the position across, the second by that down.
pub fn rope_2d_turns_halves_by_coordinates<B: VisionOps>(subject: &Subject<'_, B>) {
    for (head_dim, heads) in [(24, 4), (96, 2), (4, 1)] {
        let rope = Rope { head_dim: head_dim / 2, theta: 10_000.0 };
        let positions = [[1, 1], [7, 3], [128, 64]];
        let x = subject.noise(head_dim as u64, 3 * heads * head_dim);
        let mut buf = subject.buf(3, &x);
        subject.device.rope_2d(&mut buf, &positions, &rope).unwrap();
        let quarter = head_dim / 4;
        let turned = |(i, _): (usize, &f32)| {
            let (row, j) = (i / (heads * head_dim), i % head_dim);
            let (pair, first) = (j % (2 * quarter), j < 2 * quarter);
            let position = f64::from(positions[row][usize::from(pair >= quarter)]);
            let exponent = -((pair % quarter) as f64) / quarter as f64;
            let (sin, cos) = (position * 1e4_f64.powf(exponent)).sin_cos();
            let (a, b) = (i - j + pair, i - j + pair + 2 * quarter);
            let (a, b) = (f64::from(x[a]), f64::from(x[b]));
            let value = if first { a * cos - b * sin } else { b * cos + a * sin };
            // The angle is single precision: its error grows with the position.
            Wanted { value, magnitude: (a.abs() + b.abs()) * (1.0 + position) }
        };
        let want: Vec<_> = x.iter().enumerate().map(turned).collect();
        subject.assert_close(&format!("heads of {head_dim}"), &subject.read(&buf, x.len()), &want);
    }
}

/// `attend_ranges` over ranges that begin and end inside KV blocks, for every cache type and heads of
/// several widths; a row has the same bits in any call.
pub fn range_attention_over_every_cache_type<B: VisionOps>(subject: &Subject<'_, B>) {
    const POSITIONS: usize = 200;
    for (&kind, head_dim) in subject.kinds.iter().flat_map(|kind| [(kind, 32), (kind, 96)]) {
        let (heads, scale) = (2, 0.125_f32);
        let width = heads * head_dim;
        let blocks = POSITIONS.div_ceil(KV_BLOCK_SIZE);
        let shape = KvShape { group: KvGroup::Full, blocks, kv_heads: heads, head_dim, kind };
        let mut kv = subject.device.alloc_kv(shape).unwrap();
        let table: Vec<u32> = (0..blocks as u32).collect();
        let blocks = BlockTable { full: &table, window: &[], window_base: 0 };
        let mut noise = Noise::new(head_dim as u64);
        let q = subject.held(noise.values(POSITIONS * width));
        let [k, v] = [(); 2].map(|()| noise.storable(POSITIONS * width));
        let (keys, values) = (subject.buf(POSITIONS, &k), subject.buf(POSITIONS, &v));
        let slice = SeqSlice { start: 0, len: POSITIONS, blocks };
        subject.device.write_kv(&mut kv, &[slice], &keys, &values).unwrap();

        let part = |rows, keys| RangeQueries { rows, keys };
        let parts = [part(70, 0..70), part(1, 70..73), part(37, 73..200), part(92, 0..200)];
        let attend = |q: &[f32], parts: &[RangeQueries]| {
            let rows = q.len() / width;
            let (queries, mut out) = (subject.buf(rows, q), subject.zeros(rows, width));
            subject.device.attend_ranges(&queries, &kv, parts, scale, &mut out).unwrap();
            subject.read(&out, q.len())
        };
        let got = attend(&q, &parts);
        let mut row = 0;
        for RangeQueries { rows, keys } in parts {
            for row in row..row + rows {
                let (q, got) = (&q[row * width..][..width], &got[row * width..][..width]);
                let want = wanted(q, &k, &v, keys.clone(), head_dim, scale);
                subject.assert_close(&format!("{kind:?}, {head_dim}, row {row}"), got, &want);
            }
            let alone = part(1, keys);
            let last = row + rows - 1;
            let q = &q[last * width..][..width];
            assert_same_bits("a row alone", &attend(q, &[alone]), &got[last * width..][..width]);
            row += rows;
        }
    }
}

/// Attention of one query to a range of keys.
fn wanted(
    q: &[f32],
    k: &[f32],
    v: &[f32],
    keys: std::ops::Range<u32>,
    dim: usize,
    scale: f32,
) -> Vec<Wanted> {
    let mut out = Vec::new();
    for head in 0..q.len() / dim {
        let at = |p: u32| p as usize * q.len() + head * dim;
        let product = |p: u32| {
            let pairs = q[head * dim..][..dim].iter().zip(&k[at(p)..][..dim]);
            pairs.map(|(&q, &k)| f64::from(q) * f64::from(k)).sum::<f64>() * f64::from(scale)
        };
        let scores: Vec<f64> = keys.clone().map(product).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let total: f64 = weights.iter().sum();
        let first = out.len();
        out.resize(first + dim, Wanted { value: 0.0, magnitude: 0.0 });
        for (p, weight) in keys.clone().zip(&weights) {
            for (sum, &v) in out[first..].iter_mut().zip(&v[at(p)..][..dim]) {
                sum.value += weight / total * f64::from(v);
                // Errors of scores (themselves sums over the head) enter as exponents.
                sum.magnitude += 8.0 * weight / total * f64::from(v.abs());
            }
        }
    }
    out
}

/// `pixel_shuffle` lays rows side by side with channels outermost.
pub fn pixel_shuffles_put_channels_outermost<B: VisionOps>(subject: &Subject<'_, B>) {
    let x = subject.noise(3, 5 * 6);
    let (input, mut out) = (subject.buf(5, &x), subject.zeros(2, 24));
    let rows = [4, 0, 2, 2, 1, 3, 0, 4];
    subject.device.pixel_shuffle(&input, &rows, 4, &mut out).unwrap();
    let value = |i: usize| x[rows[i / 24 * 4 + i % 4] as usize * 6 + i % 24 / 4];
    let want: Vec<f32> = (0..48).map(value).collect();
    assert_same_bits("shuffled", &subject.read(&out, 48), &want);
}

/// No operation depends on the other rows of a call.
pub fn vision_row_operations_are_batch_invariant<B: VisionOps>(subject: &Subject<'_, B>) {
    const ROWS: usize = 40;
    let cols = 1536 + 96;
    let (x, w) = (subject.noise(11, ROWS * cols), subject.noise(12, cols));
    let weight = subject.buf(1, &w);
    let positions: Vec<[u32; 2]> = (0..ROWS as u32).map(|i| [i % 7, i / 7]).collect();
    let run = |first: usize, rows: usize| {
        let buf = || subject.buf(rows, &x[first * cols..(first + rows) * cols]);
        let (mut normed, mut gelu, mut turned) = (subject.zeros(rows, cols), buf(), buf());
        let device = subject.device;
        device.layer_norm(&buf(), rows, &weight, &weight, 1e-5, &mut normed).unwrap();
        device.gelu(&mut gelu, rows, Some(&weight)).unwrap();
        let rope = Rope { head_dim: 48, theta: 1e4 };
        device.rope_2d(&mut turned, &positions[first..first + rows], &rope).unwrap();
        [normed, gelu, turned].map(|buf| subject.read(&buf, rows * cols))
    };
    let all = run(0, ROWS);
    for (first, rows) in [(0, 1), (3, 2), (17, 16), (39, 1)] {
        for (part, all) in run(first, rows).iter().zip(&all) {
            assert_same_bits("some rows", part, &all[first * cols..(first + rows) * cols]);
        }
    }
}

/// Expands to one test per operation of the vision tower for the device that the expression opens;
/// `tolerance` as in the suite of backends.
#[macro_export]
macro_rules! vision_ops_suite {
    ($device:expr, tolerance = $tolerance:expr) => {
        $crate::vision_ops_suite! { @tests ($device, $tolerance);
            layer_norms_and_biases
            gelu_is_the_exact_one
            rope_2d_turns_halves_by_coordinates
            range_attention_over_every_cache_type
            pixel_shuffles_put_channels_outermost
            vision_row_operations_are_batch_invariant
        }
    };
    (@tests ($device:expr, $tolerance:expr); $($test:ident)*) => {
        $(
            #[test]
            fn $test() {
                let device = $device;
                let subject = $crate::suite::backend::Subject::new(&device, $tolerance);
                $crate::suite::backend::$test(&subject);
            }
        )*
    };
}
