//! [`Backend`] on the CPU: checks shapes, cuts operations into tasks, leaves loops to kernels.

use std::sync::OnceLock;

use muse_core::contract::{
    Attention, Backend, KvShape, PageCopy, PickRow, Picked, Place, Rope, Token, WeightView,
};
use muse_core::{Error, Result, sampler};

use crate::attend::{attend, visible};
use crate::buf::{Buf, Weight};
use crate::kernels::linear;
use crate::kv::Kv;

/// How the CPU is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads that share the work, the caller's included; none means one a core.
    pub threads: Option<usize>,
}

/// The CPU as a device.
#[derive(Debug)]
pub struct Cpu {
    rotary: Rotary,
}

impl Cpu {
    /// Takes the CPU into use.
    ///
    /// # Errors
    /// [`Error::Invalid`] for zero threads.
    pub fn new(options: CpuOptions) -> Result<Self> {
        if options.threads == Some(0) {
            return Err(Error::Invalid("0 threads cannot run anything: ask for 1 or more".into()));
        }
        Ok(Self { rotary: Rotary::default() })
    }
}

/// Frequencies of the rotary embeddings in use, found without a lock.
#[derive(Debug, Default)]
struct Rotary(OnceLock<Box<Frequencies>>);

#[derive(Debug)]
struct Frequencies {
    rope: Rope,
    values: Vec<f32>,
    next: Rotary,
}

impl Rotary {
    fn frequencies(&self, rope: &Rope) -> &[f32] {
        let mut list = self;
        loop {
            let entry = list.0.get_or_init(|| {
                let exponent = |j: usize| -2.0 * j as f64 / rope.head_dim as f64;
                let values = (0..rope.head_dim / 2)
                    .map(|j| f64::from(rope.theta).powf(exponent(j)) as f32)
                    .collect();
                Box::new(Frequencies { rope: *rope, values, next: Self::default() })
            });
            if entry.rope == *rope {
                return &entry.values;
            }
            list = &entry.next;
        }
    }
}

impl Backend for Cpu {
    type Buf = Buf;
    type Weight = Weight;
    type Kv = Kv;

    fn alloc(&self, rows: usize, cols: usize) -> Result<Buf> {
        Buf::zeroed(rows, cols)
    }

    fn write(&self, buf: &mut Buf, first_row: usize, data: &[f32]) -> Result<()> {
        let rows = whole_rows(data.len(), buf.cols());
        buf.rows_mut(first_row..first_row + rows).copy_from_slice(data);
        Ok(())
    }

    fn read(&self, buf: &Buf, first_row: usize, out: &mut [f32]) -> Result<()> {
        let rows = whole_rows(out.len(), buf.cols());
        out.copy_from_slice(buf.rows(first_row..first_row + rows));
        Ok(())
    }

    fn copy(
        &self,
        from: &Buf,
        rows: &[u32],
        to: &mut Buf,
        first_row: usize,
        first_col: usize,
    ) -> Result<()> {
        let (width, cols) = (to.cols(), first_col..first_col + from.cols());
        assert!(cols.end <= width, "columns {cols:?} of a buffer of width {width}");
        let to = to.rows_mut(first_row..first_row + rows.len());
        for (&row, to) in rows.iter().zip(to.chunks_exact_mut(width)) {
            let row = row as usize;
            to[cols.clone()].copy_from_slice(from.rows(row..row + 1));
        }
        Ok(())
    }

    fn load(&self, weight: WeightView<'_>) -> Result<Weight> {
        Weight::load(&weight)
    }

    fn alloc_kv(&self, shape: KvShape) -> Result<Kv> {
        Kv::zeroed(shape)
    }

    fn copy_pages(&self, kv: &mut Kv, copies: &[PageCopy]) -> Result<()> {
        let group = kv.shape().group;
        copies.iter().filter(|copy| copy.group == group).for_each(|copy| kv.copy(copy));
        Ok(())
    }

    fn save_page(&self, kv: &Kv, page: u32, out: &mut Vec<u8>) -> Result<()> {
        kv.save(page, out);
        Ok(())
    }

    fn load_page(&self, kv: &mut Kv, page: u32, bytes: &mut &[u8]) -> Result<()> {
        kv.load(page, bytes)
    }

    fn embed(&self, table: &Weight, ids: &[Token], out: &mut Buf, first_row: usize) -> Result<()> {
        let (rows, cols) = table.shape();
        assert_eq!(cols, out.cols(), "width of the embedding and of its output");
        let out = out.rows_mut(first_row..first_row + ids.len());
        for (&Token(id), out) in ids.iter().zip(out.chunks_exact_mut(cols)) {
            let id = id as usize;
            assert!(id < rows, "token {id} of a vocabulary of {rows}");
            table.layout().format().decode(table.rows(id..id + 1), out);
        }
        Ok(())
    }

    fn linear(&self, x: &Buf, rows: usize, into: &mut [(&Weight, &mut Buf)]) -> Result<()> {
        for (weight, y) in into {
            let (n, k) = weight.shape();
            assert_eq!(x.cols(), k, "width of the input of {weight:?}");
            assert_eq!(y.cols(), n, "width of the output of {weight:?}");
            let kernel = linear::select(weight.layout());
            kernel(x.rows(0..rows), weight.rows(0..n), k, y.rows_mut(0..rows));
        }
        Ok(())
    }

    fn rms_norm(
        &self,
        x: &Buf,
        rows: usize,
        weight: Option<&Buf>,
        eps: f32,
        out: &mut Buf,
    ) -> Result<()> {
        let width = x.cols();
        assert_eq!(width, out.cols(), "widths of a norm's input and output");
        let weight = weight.map(|weight| norm_weight(weight, width));
        let out = out.rows_mut(0..rows).chunks_exact_mut(width);
        for (x, out) in x.rows(0..rows).chunks_exact(width).zip(out) {
            out.copy_from_slice(x);
            norm(out, weight, eps);
        }
        Ok(())
    }

    fn head_norm(&self, x: &mut Buf, rows: usize, weight: &Buf, eps: f32) -> Result<()> {
        let (width, head_dim) = (x.cols(), weight.cols());
        assert!(width.is_multiple_of(head_dim), "{width} columns are heads of {head_dim}");
        let weight = norm_weight(weight, head_dim);
        for head in x.rows_mut(0..rows).chunks_exact_mut(head_dim) {
            norm(head, Some(weight), eps);
        }
        Ok(())
    }

    fn rope(&self, x: &mut Buf, places: &[Place<'_>], rope: &Rope) -> Result<()> {
        let (width, dim) = (x.cols(), rope.head_dim);
        assert!(dim.is_multiple_of(2), "a head of {dim} has pairs");
        assert!(width.is_multiple_of(dim), "{width} columns are heads of {dim}");
        let frequencies = self.rotary.frequencies(rope);
        let mut rows = x.rows_mut(0..total_rows(places)).chunks_exact_mut(width);
        for position in places.iter().flat_map(positions) {
            let row = rows.next().expect("as many rows as positions");
            for (j, &frequency) in frequencies.iter().enumerate() {
                let (sin, cos) = (position as f32 * frequency).sin_cos();
                for head in row.chunks_exact_mut(dim) {
                    let (a, b) = (head[j], head[j + dim / 2]);
                    head[j] = a * cos - b * sin;
                    head[j + dim / 2] = b * cos + a * sin;
                }
            }
        }
        Ok(())
    }

    fn write_kv(&self, kv: &mut Kv, places: &[Place<'_>], k: &Buf, v: &Buf) -> Result<()> {
        let shape = kv.shape();
        let (dim, width) = (shape.head_dim, shape.kv_heads * shape.head_dim);
        assert_eq!((k.cols(), v.cols()), (width, width), "widths of K and V rows");
        let rows = total_rows(places);
        let mut rows = k.rows(0..rows).chunks_exact(width).zip(v.rows(0..rows).chunks_exact(width));
        for place in places {
            for position in positions(place) {
                let (page, slot) = place.pages.slot(shape.group, position);
                let (k, v) = rows.next().expect("as many rows as positions");
                for (head, (k, v)) in k.chunks_exact(dim).zip(v.chunks_exact(dim)).enumerate() {
                    kv.write(page, head, slot, k, v);
                }
            }
        }
        Ok(())
    }

    fn attend(
        &self,
        q: &Buf,
        kv: &Kv,
        places: &[Place<'_>],
        attention: &Attention,
        out: &mut Buf,
    ) -> Result<()> {
        let shape = kv.shape();
        let Attention { heads, head_dim, scale, mask } = *attention;
        assert_eq!(head_dim, shape.head_dim, "head widths of queries and of the cache");
        assert!(heads.is_multiple_of(shape.kv_heads), "{heads} heads over {}", shape.kv_heads);
        let (width, group) = (heads * head_dim, heads / shape.kv_heads * head_dim);
        assert_eq!((q.cols(), out.cols()), (width, width), "widths of queries and output");
        let rows = total_rows(places);
        let (q, out) = (q.rows(0..rows), out.rows_mut(0..rows));
        let mut tasks = q.chunks_exact(group).zip(out.chunks_exact_mut(group));
        for place in places {
            for t in positions(place) {
                for head in 0..shape.kv_heads {
                    let (q, out) = tasks.next().expect("as many rows as positions");
                    attend(q, kv, head, &place.pages, visible(mask, place, t), scale, out);
                }
            }
        }
        Ok(())
    }

    fn gate(&self, x: &mut Buf, rows: usize, gate: &Buf) -> Result<()> {
        each(x, rows, gate, |x, gate| x * sigmoid(gate))
    }

    fn silu_mul(&self, gate: &mut Buf, rows: usize, up: &Buf) -> Result<()> {
        each(gate, rows, up, |gate, up| gate * sigmoid(gate) * up)
    }

    fn add(&self, x: &mut Buf, rows: usize, y: &Buf) -> Result<()> {
        each(x, rows, y, |x, y| x + y)
    }

    fn scale_cap(&self, x: &mut Buf, rows: usize, scale: f32, cap: Option<f32>) -> Result<()> {
        let x = x.rows_mut(0..rows).iter_mut();
        match cap {
            Some(cap) => x.for_each(|x| *x = cap * (*x * scale / cap).tanh()),
            None => x.for_each(|x| *x *= scale),
        }
        Ok(())
    }

    fn pick(&self, scores: &Buf, rows: &[PickRow<'_>], out: &mut Vec<Picked>) -> Result<()> {
        out.extend(rows.iter().map(|row| sampler::pick(scores.rows(row.row..row.row + 1), row)));
        Ok(())
    }
}

fn whole_rows(values: usize, cols: usize) -> usize {
    assert!(cols > 0 && values.is_multiple_of(cols), "{values} values are rows of {cols}");
    values / cols
}

fn total_rows(places: &[Place<'_>]) -> usize {
    places.iter().map(|place| place.rows).sum()
}

fn positions(place: &Place<'_>) -> std::ops::Range<u32> {
    place.start..place.start + place.rows as u32
}

fn norm_weight(weight: &Buf, width: usize) -> &[f32] {
    assert_eq!(weight.cols(), width, "width of a norm's weight");
    weight.rows(0..1)
}

fn norm(x: &mut [f32], weight: Option<&[f32]>, eps: f32) {
    let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    let factor = 1.0 / (mean + eps).sqrt();
    match weight {
        Some(weight) => x.iter_mut().zip(weight).for_each(|(x, w)| *x = *x * factor * w),
        None => x.iter_mut().for_each(|x| *x *= factor),
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn each(x: &mut Buf, rows: usize, y: &Buf, f: impl Fn(f32, f32) -> f32) -> Result<()> {
    assert_eq!(x.cols(), y.cols(), "widths of the operands");
    let y = y.rows(0..rows);
    x.rows_mut(0..rows).iter_mut().zip(y).for_each(|(x, &y)| *x = f(*x, y));
    Ok(())
}
