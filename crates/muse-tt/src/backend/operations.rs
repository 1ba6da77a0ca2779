//! The operations of the contract, each over the plans of [`crate::op`].

use std::collections::hash_map::Entry;

use muse_core::contract::{
    Attention, Backend, BlockCopy, KvShape, Rope, SampleRow, Sampled, Sampling, SeqSlice,
    TensorInfo, Token, WeightView,
};
use muse_core::quant::tile::TileFormat;
use muse_core::{Error, Result, sampler};

use super::{Activations, EMBEDDING, Loaded, State, Tt};
use crate::matrix::{Ids, Matrix, Table};
use crate::op::{self, Binary, Rotations, Unary};
use crate::pages::{KvPages, positions, slots};
use crate::segments::Segments;
use crate::weight::{Layout, Weight};

impl Backend for Tt {
    type Buf = Activations;
    type Weight = Loaded;
    type Kv = KvPages;

    fn alloc(&self, rows: usize, cols: usize) -> Result<Activations> {
        // There are models without taps, but no buffers without bytes.
        let (real, cols) = (rows.max(1), cols.max(1));
        let matrix = Matrix::of(&self.device, TileFormat::Bf16, &vec![0.0; real * cols], cols)?;
        Ok(Activations { matrix, rows })
    }

    fn write(&self, buf: &mut Activations, first_row: usize, data: &[f32]) -> Result<()> {
        buf.matrix.write_rows(first_row, data)
    }

    fn read(&self, buf: &Activations, first_row: usize, out: &mut [f32]) -> Result<()> {
        let cols = buf.matrix.shape().1;
        assert!(out.len().is_multiple_of(cols), "{} values are rows of {cols}", out.len());
        let rows = first_row..first_row + out.len() / cols;
        out.copy_from_slice(&buf.matrix.read_rows(rows)?);
        Ok(())
    }

    fn copy(
        &self,
        from: &Activations,
        rows: &[u32],
        to: &mut Activations,
        first_row: usize,
        first_col: usize,
    ) -> Result<()> {
        assert!(rows.iter().all(|row| (*row as usize) < from.rows), "rows of the source");
        if rows.is_empty() {
            return Ok(());
        }
        self.copy_rows(&from.matrix, rows, &to.matrix, (first_row, first_col))
    }

    fn load(&self, weight: WeightView<'_>) -> Result<Loaded> {
        let Some(format) = self.format(weight.name) else {
            let table = Table::of(&self.device, &weight.to_f32(), weight.cols)?;
            return Ok(Loaded::Rows(table));
        };
        let layout = Layout { format, rows: weight.rows, cols: weight.cols };
        if let Some(cache) = &self.cache {
            let bytes = cache.read(weight.name, layout)?;
            return Ok(Loaded::Product(Weight::of_bytes(&self.device, layout, &bytes)?));
        }
        let mut bytes = Vec::with_capacity(layout.bytes());
        layout.encode_all(&weight).for_each(|column| bytes.extend(column));
        Ok(Loaded::Product(Weight::of_bytes(&self.device, layout, &bytes)?))
    }

    fn weight_bytes(&self, tensor: &TensorInfo) -> u64 {
        match self.format(&tensor.name) {
            Some(format) => format.matrix_bytes(tensor.rows, tensor.cols) as u64,
            // The embedding table is kept as rows.
            None => Table::bytes_for(tensor.rows, tensor.cols) as u64,
        }
    }

    fn free_memory(&self) -> Result<Option<u64>> {
        // The shim has no function that asks the device.
        Ok(None)
    }

    fn alloc_kv(&self, shape: KvShape) -> Result<KvPages> {
        KvPages::new(&self.device, shape)
    }

    fn copy_blocks(&self, kv: &mut KvPages, copies: &[BlockCopy]) -> Result<()> {
        let group = kv.group();
        for copy in copies.iter().filter(|copy| copy.group == group && copy.positions > 0) {
            for (matrix, head) in (0..kv.heads()).flat_map(|head| [(&kv.k, head), (&kv.v, head)]) {
                let from: Vec<u32> = kv.rows(copy.from, head, copy.positions).collect();
                let to = kv.rows(copy.to, head, copy.positions).start as usize;
                self.copy_rows(matrix, &from, matrix, (to, 0))?;
            }
        }
        Ok(())
    }

    fn save_block(&self, kv: &KvPages, page: u32, out: &mut Vec<u8>) -> Result<()> {
        kv.save(page, out)
    }

    fn load_block(&self, kv: &mut KvPages, page: u32, bytes: &mut &[u8]) -> Result<()> {
        let wanted = kv.page_bytes();
        let Some((own, rest)) = bytes.split_at_checked(wanted) else {
            return Err(Error::Corrupt(format!(
                "{} bytes of a saved page, expected {wanted}: it was saved by another model or \
                 device; delete the saved pages",
                bytes.len()
            )));
        };
        kv.load(page, own)?;
        *bytes = rest;
        Ok(())
    }

    fn embed(
        &self,
        table: &Loaded,
        ids: &[Token],
        out: &mut Activations,
        first_row: usize,
    ) -> Result<()> {
        let Loaded::Rows(table) = table else { panic!("only {EMBEDDING} is gathered from") };
        if ids.is_empty() {
            return Ok(());
        }
        assert!(first_row + ids.len() <= out.rows, "rows of the embedding's output");
        let numbers: Vec<u32> = ids.iter().map(|token| token.0).collect();
        assert!(numbers.iter().all(|id| (*id as usize) < table.rows()), "tokens of the vocabulary");
        let (numbers, count) = (Ids::of(&self.device, &numbers)?, ids.len() as u32);
        // The kernel writes whole tiles, and rows of others may share them.
        let gathered = Matrix::new(&self.device, TileFormat::Bf16, ids.len(), table.cols())?;
        self.run(&op::embed(table, &numbers, count, &gathered, self.cores))?;
        let rows: Vec<u32> = (0..count).collect();
        self.copy_rows(&gathered, &rows, &out.matrix, (first_row, 0))
    }

    fn linear(
        &self,
        x: &Activations,
        rows: usize,
        into: &mut [(&Loaded, &mut Activations)],
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let x = x.matrix.top(rows);
        for (weight, out) in into {
            let Loaded::Product(weight) = weight else { panic!("{EMBEDDING} is not multiplied") };
            self.run(&op::matmul(&x, weight, &out.matrix.top(rows), self.cores))?;
        }
        Ok(())
    }

    fn rms_norm(
        &self,
        x: &Activations,
        rows: usize,
        weight: Option<&Activations>,
        eps: f32,
        out: &mut Activations,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let (x, out) = (x.matrix.top(rows), out.matrix.top(rows));
        let weight = weight.map(|weight| &weight.matrix);
        self.run(&op::rms_norm(&x, weight, eps, &out, self.cores))
    }

    fn head_norm(
        &self,
        x: &mut Activations,
        rows: usize,
        weight: &Activations,
        eps: f32,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let x = x.matrix.top(rows);
        self.run(&op::head_norm(&x, &weight.matrix, eps, &x, self.cores))
    }

    fn rope(&self, x: &mut Activations, slices: &[SeqSlice<'_>], rope: &Rope) -> Result<()> {
        let rows = SeqSlice::total_len(slices);
        if rows == 0 {
            return Ok(());
        }
        let at = Ids::of(&self.device, &positions(slices))?;
        let end = slices.iter().map(|slice| slice.start as usize + slice.len).max().unwrap_or(0);
        let known = self.options.positions;
        assert!(end <= known, "position {end}, the device was opened for {known}");
        let x = x.matrix.top(rows);
        let mut state = self.state();
        let State { programs, rotations } = &mut *state;
        let rotations = match rotations.entry((rope.head_dim, rope.theta.to_bits())) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(room) => room.insert(Rotations::new(&self.device, rope, known)?),
        };
        programs.run(&op::rope(&x, &at, rotations, &x, self.cores), true)
    }

    fn write_kv(
        &self,
        kv: &mut KvPages,
        slices: &[SeqSlice<'_>],
        k: &Activations,
        v: &Activations,
    ) -> Result<()> {
        let rows = SeqSlice::total_len(slices);
        if rows == 0 {
            return Ok(());
        }
        let at = Ids::of(&self.device, &slots(slices, kv.group()))?;
        self.run(&op::write_kv(&k.matrix.top(rows), &v.matrix.top(rows), &at, kv, self.cores))
    }

    fn attend(
        &self,
        q: &Activations,
        kv: &KvPages,
        slices: &[SeqSlice<'_>],
        attention: &Attention,
        out: &mut Activations,
    ) -> Result<()> {
        let rows = SeqSlice::total_len(slices);
        if rows == 0 {
            return Ok(());
        }
        let Attention { heads, head_dim, scale, mask } = *attention;
        assert_eq!((head_dim, q.matrix.shape().1), (kv.head_dim(), heads * head_dim), "heads");
        // Programs are compiled for the room that there is: powers of two are few.
        let room = Segments::count(slices, mask, op::PIECE_PAGES).next_power_of_two();
        let mut segments = Segments::new(&self.device, room, op::PIECE_PAGES)?;
        segments.write(slices, kv.group(), mask)?;
        let (q, out) = (q.matrix.top(rows), out.matrix.top(rows));
        let partials = op::attend_partials(&q, kv, &segments)?;
        let plans = op::attend(&q, kv, &segments, &partials, scale, &out, self.cores);
        plans.iter().take(1 + usize::from(segments.has_pieces())).try_for_each(|p| self.run(p))
    }

    fn gate(&self, x: &mut Activations, rows: usize, gate: &Activations) -> Result<()> {
        self.on_two(Binary::Gate, x, rows, gate)
    }

    fn silu_mul(&self, gate: &mut Activations, rows: usize, up: &Activations) -> Result<()> {
        self.on_two(Binary::SiluMul, gate, rows, up)
    }

    fn add(&self, x: &mut Activations, rows: usize, y: &Activations) -> Result<()> {
        self.on_two(Binary::Add, x, rows, y)
    }

    fn scale_softcap(
        &self,
        x: &mut Activations,
        rows: usize,
        scale: f32,
        cap: Option<f32>,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let x = x.matrix.top(rows);
        let operation = cap.map_or(Unary::Scale(scale), |cap| Unary::Cap { scale, cap });
        self.run(&op::unary(operation, &x, &x, self.cores))
    }

    fn sample(
        &self,
        scores: &Activations,
        rows: &[SampleRow<'_>],
        out: &mut Vec<Sampled>,
    ) -> Result<()> {
        let Some(end) = rows.iter().map(|row| row.row + 1).max() else { return Ok(()) };
        if rows.iter().all(is_largest) {
            let columns = self.largest(scores, end)?;
            let token = |row: &SampleRow<'_>| Token(columns[row.row]);
            let picked = |row| Sampled { token: token(row), logprob: 0.0, top: Vec::new() };
            out.extend(rows.iter().map(picked));
            return Ok(());
        }
        let first = rows.iter().map(|row| row.row).min().unwrap_or(end);
        let (read, cols) = (scores.matrix.read_rows(first..end)?, scores.matrix.shape().1);
        let scores = |row: &SampleRow<'_>| &read[(row.row - first) * cols..][..cols];
        out.extend(rows.iter().map(|row| sampler::sample(scores(row), row)));
        Ok(())
    }
}

/// Whether the largest score is all that is asked for.
pub(super) fn is_largest(row: &SampleRow<'_>) -> bool {
    let Sampling { temperature, seed, .. } = *row.sampling;
    let plain = Sampling { temperature, seed, ..Sampling::default() };
    temperature == 0.0 && *row.sampling == plain && row.mask.is_none() && row.logprobs.is_none()
}
