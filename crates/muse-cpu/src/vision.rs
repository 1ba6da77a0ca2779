//! [`VisionOps`] on the CPU.

use muse_core::Result;
use muse_core::contract::{RangeQueries, Rope, VisionOps};

use crate::backend::{Cpu, MIN_SHARED_PRODUCTS, norm_weight};
use crate::buf::Buf;
use crate::kv::Kv;
use crate::range_attention::RangeAttention;

impl VisionOps for Cpu {
    fn layer_norm(
        &self,
        x: &Buf,
        rows: usize,
        weight: &Buf,
        bias: &Buf,
        eps: f32,
        out: &mut Buf,
    ) -> Result<()> {
        let width = x.cols();
        assert_eq!(width, out.cols(), "widths of a norm's input and output");
        let (weight, bias) = (norm_weight(weight, width), bias_row(bias, width));
        let x = x.rows(0..rows);
        self.by_row(out.rows_mut(0..rows), width, |row, out| {
            out.copy_from_slice(&x[row * width..(row + 1) * width]);
            (self.kernels.layer_norm)(out, weight, bias, eps);
        });
        Ok(())
    }

    fn add_bias(&self, x: &mut Buf, rows: usize, bias: &Buf) -> Result<()> {
        let width = x.cols();
        let bias = bias_row(bias, width);
        self.by_row(x.rows_mut(0..rows), width, |_, x| (self.kernels.add)(x, bias));
        Ok(())
    }

    fn gelu(&self, x: &mut Buf, rows: usize, bias: Option<&Buf>) -> Result<()> {
        let width = x.cols();
        let bias = bias.map_or([].as_slice(), |bias| bias_row(bias, width));
        self.by_row(x.rows_mut(0..rows), width, |_, x| (self.kernels.gelu)(x, bias));
        Ok(())
    }

    fn rope_2d(&self, x: &mut Buf, positions: &[[u32; 2]], rope: &Rope) -> Result<()> {
        let (width, dim) = (x.cols(), 2 * rope.head_dim);
        assert!(dim.is_multiple_of(4), "heads of {dim} are no pairs of pairs");
        assert!(width.is_multiple_of(dim), "{width} columns of heads of {dim}");
        let frequencies = self.rope_frequencies.of(rope);
        self.by_row(x.rows_mut(0..positions.len()), width, |row, x| {
            (self.kernels.rope_2d)(x, positions[row].map(|at| at as f32), frequencies);
        });
        Ok(())
    }

    fn attend_ranges(
        &self,
        q: &Buf,
        kv: &Kv,
        parts: &[RangeQueries],
        scale: f32,
        out: &mut Buf,
    ) -> Result<()> {
        let width = kv.shape().kv_heads * kv.shape().head_dim;
        assert_eq!((q.cols(), out.cols()), (width, width), "widths of queries and output");
        let rows = parts.iter().map(|part| part.rows).sum();
        let products: usize = parts.iter().map(|part| part.rows * part.keys.len() * width).sum();
        let call = RangeAttention { kernels: &self.kernels, kv, parts, scale, q: q.rows(0..rows) };
        let shared = products >= MIN_SHARED_PRODUCTS;
        call.run(shared.then_some(&self.pool), out.rows_mut(0..rows));
        Ok(())
    }

    fn pixel_shuffle(&self, x: &Buf, rows: &[u32], group: usize, out: &mut Buf) -> Result<()> {
        let cols = x.cols();
        assert!(group > 0 && rows.len().is_multiple_of(group), "whole groups of rows");
        assert_eq!(out.cols(), group * cols, "width of {group} rows side by side");
        let out = out.rows_mut(0..rows.len() / group);
        self.by_row(out, group * cols, |i, out| {
            for (j, &row) in rows[i * group..(i + 1) * group].iter().enumerate() {
                let row = row as usize;
                let channels = x.rows(row..row + 1);
                out.iter_mut().skip(j).step_by(group).zip(channels).for_each(|(to, x)| *to = *x);
            }
        });
        Ok(())
    }
}

fn bias_row(bias: &Buf, width: usize) -> &[f32] {
    assert_eq!(bias.cols(), width, "width of a bias");
    bias.rows(0..1)
}
