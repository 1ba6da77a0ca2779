//! The operations of the contract, implemented with the plans of [`crate::op`].

use std::collections::hash_map::Entry;

use muse_core::contract::{
    Attention, Backend, BlockCopy, KvShape, Rope, SampleRow, Sampled, Sampling, SeqSlice,
    TensorInfo, Token, WeightView,
};
use muse_core::quant::tile::TileFormat;
use muse_core::{Error, Result, sampler};

use super::{Activations, EMBEDDING, LoadedWeight, State, Tt};
use crate::kv_cache::{KvCache, positions, slot_mapping};
use crate::matrix::{EmbeddingTable, IndexBuffer, Matrix};
use crate::op::{self, Binary, RopeTable, Unary};
use crate::segments::Segments;
use crate::weight::{Weight, WeightLayout};

impl Backend for Tt {
    type Buf = Activations;
    type Weight = LoadedWeight;
    type Kv = KvCache;

    fn alloc(&self, rows: usize, cols: usize) -> Result<Activations> {
        // A model may capture no hidden states, but a device buffer cannot be empty.
        let (stored_rows, cols) = (rows.max(1), cols.max(1));
        let matrix = Matrix::from_values(
            &self.device,
            TileFormat::Bf16,
            &vec![0.0; stored_rows * cols],
            cols,
        )?;
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

    fn load(&self, weight: WeightView<'_>) -> Result<LoadedWeight> {
        let Some(format) = self.format(weight.name) else {
            let table = EmbeddingTable::from_values(&self.device, &weight.to_f32(), weight.cols)?;
            return Ok(LoadedWeight::Embedding(table));
        };
        let layout = WeightLayout { format, rows: weight.rows, cols: weight.cols };
        if let Some(cache) = &self.cache {
            let bytes = cache.read(weight.name, layout)?;
            return Ok(LoadedWeight::Matmul(Weight::from_bytes(&self.device, layout, &bytes)?));
        }
        let mut bytes = Vec::with_capacity(layout.bytes());
        layout.encode_columns(&weight).for_each(|column| bytes.extend(column));
        Ok(LoadedWeight::Matmul(Weight::from_bytes(&self.device, layout, &bytes)?))
    }

    fn weight_bytes(&self, tensor: &TensorInfo) -> u64 {
        match self.format(&tensor.name) {
            Some(format) => format.matrix_bytes(tensor.rows, tensor.cols) as u64,
            // The embedding is a row-major table.
            None => EmbeddingTable::bytes_for(tensor.rows, tensor.cols) as u64,
        }
    }

    fn free_memory(&self) -> Result<Option<u64>> {
        // The shim has no function that asks the device.
        Ok(None)
    }

    fn alloc_kv(&self, shape: KvShape) -> Result<KvCache> {
        KvCache::new(&self.device, shape)
    }

    fn copy_blocks(&self, kv: &mut KvCache, copies: &[BlockCopy]) -> Result<()> {
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

    fn save_block(&self, kv: &KvCache, block: u32, out: &mut Vec<u8>) -> Result<()> {
        kv.save(block, out)
    }

    fn load_block(&self, kv: &mut KvCache, block: u32, bytes: &mut &[u8]) -> Result<()> {
        let expected = kv.block_bytes();
        let Some((own, rest)) = bytes.split_at_checked(expected) else {
            return Err(Error::Corrupt(format!(
                "{} bytes of a saved KV block, expected {expected}: it was saved by another model \
                 or device; delete the saved KV blocks",
                bytes.len()
            )));
        };
        kv.load(block, own)?;
        *bytes = rest;
        Ok(())
    }

    fn embed(
        &self,
        table: &LoadedWeight,
        ids: &[Token],
        out: &mut Activations,
        first_row: usize,
    ) -> Result<()> {
        let LoadedWeight::Embedding(table) = table else {
            panic!("rows are gathered from {EMBEDDING} only")
        };
        if ids.is_empty() {
            return Ok(());
        }
        assert!(first_row + ids.len() <= out.rows, "rows of the output");
        let indices: Vec<u32> = ids.iter().map(|token| token.0).collect();
        assert!(indices.iter().all(|id| (*id as usize) < table.rows()), "tokens of the vocabulary");
        let (indices, count) =
            (IndexBuffer::from_values(&self.device, &indices)?, ids.len() as u32);
        // The kernel writes whole tiles, which may contain other rows of `out`.
        let gathered = Matrix::new(&self.device, TileFormat::Bf16, ids.len(), table.cols())?;
        self.run(&op::embed(table, &indices, count, &gathered, self.cores))?;
        let rows: Vec<u32> = (0..count).collect();
        self.copy_rows(&gathered, &rows, &out.matrix, (first_row, 0))
    }

    fn linear(
        &self,
        x: &Activations,
        rows: usize,
        into: &mut [(&LoadedWeight, &mut Activations)],
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let x = x.matrix.first_rows(rows);
        for (weight, out) in into {
            let LoadedWeight::Matmul(weight) = weight else {
                panic!("{EMBEDDING} is not multiplied")
            };
            self.run(&op::matmul(&x, weight, &out.matrix.first_rows(rows), self.cores))?;
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
        let (x, out) = (x.matrix.first_rows(rows), out.matrix.first_rows(rows));
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
        let x = x.matrix.first_rows(rows);
        self.run(&op::head_norm(&x, &weight.matrix, eps, &x, self.cores))
    }

    fn rope(&self, x: &mut Activations, slices: &[SeqSlice<'_>], rope: &Rope) -> Result<()> {
        let rows = SeqSlice::total_len(slices);
        if rows == 0 {
            return Ok(());
        }
        let at = IndexBuffer::from_values(&self.device, &positions(slices))?;
        let end = slices.iter().map(|slice| slice.start as usize + slice.len).max().unwrap_or(0);
        let known = self.options.positions;
        assert!(end <= known, "position {end} of a device that was opened for {known} positions");
        let x = x.matrix.first_rows(rows);
        let mut state = self.state();
        let State { programs, rope_tables } = &mut *state;
        let rope_tables = match rope_tables.entry((rope.head_dim, rope.theta.to_bits())) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(RopeTable::new(&self.device, rope, known)?),
        };
        programs.run(&op::rope(&x, &at, rope_tables, &x, self.cores), true)
    }

    fn write_kv(
        &self,
        kv: &mut KvCache,
        slices: &[SeqSlice<'_>],
        k: &Activations,
        v: &Activations,
    ) -> Result<()> {
        let rows = SeqSlice::total_len(slices);
        if rows == 0 {
            return Ok(());
        }
        let at = IndexBuffer::from_values(&self.device, &slot_mapping(slices, kv.group()))?;
        self.run(&op::write_kv(
            &k.matrix.first_rows(rows),
            &v.matrix.first_rows(rows),
            &at,
            kv,
            self.cores,
        ))
    }

    fn attend(
        &self,
        q: &Activations,
        kv: &KvCache,
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
        // Programs are compiled for a capacity: rounding to powers of two keeps them few.
        let capacity = Segments::count(slices, mask, op::KV_SPLIT_BLOCKS).next_power_of_two();
        let mut segments = Segments::new(&self.device, capacity, op::KV_SPLIT_BLOCKS)?;
        segments.write(slices, kv.group(), mask)?;
        let (q, out) = (q.matrix.first_rows(rows), out.matrix.first_rows(rows));
        let partials = op::attend_partials(&q, kv, &segments)?;
        let plans = op::attend(&q, kv, &segments, &partials, scale, &out, self.cores);
        plans.iter().take(1 + usize::from(segments.has_splits())).try_for_each(|p| self.run(p))
    }

    fn gate(&self, x: &mut Activations, rows: usize, gate: &Activations) -> Result<()> {
        self.binary_in_place(Binary::Gate, x, rows, gate)
    }

    fn silu_mul(&self, gate: &mut Activations, rows: usize, up: &Activations) -> Result<()> {
        self.binary_in_place(Binary::SiluMul, gate, rows, up)
    }

    fn add(&self, x: &mut Activations, rows: usize, y: &Activations) -> Result<()> {
        self.binary_in_place(Binary::Add, x, rows, y)
    }

    fn scale_softcap(
        &self,
        x: &mut Activations,
        rows: usize,
        scale: f32,
        softcap: Option<f32>,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let x = x.matrix.first_rows(rows);
        let operation =
            softcap.map_or(Unary::Scale(scale), |softcap| Unary::Softcap { scale, softcap });
        self.run(&op::unary(operation, &x, &x, self.cores))
    }

    fn sample(
        &self,
        logits: &Activations,
        rows: &[SampleRow<'_>],
        out: &mut Vec<Sampled>,
    ) -> Result<()> {
        let Some(end) = rows.iter().map(|row| row.row + 1).max() else { return Ok(()) };
        if rows.iter().all(is_argmax) {
            let columns = self.argmax(logits, end)?;
            let token = |row: &SampleRow<'_>| Token(columns[row.row]);
            let sampled = |row| Sampled { token: token(row), logprob: 0.0, top: Vec::new() };
            out.extend(rows.iter().map(sampled));
            return Ok(());
        }
        let first = rows.iter().map(|row| row.row).min().unwrap_or(end);
        let (read, cols) = (logits.matrix.read_rows(first..end)?, logits.matrix.shape().1);
        let logits = |row: &SampleRow<'_>| &read[(row.row - first) * cols..][..cols];
        out.extend(rows.iter().map(|row| sampler::sample(logits(row), row)));
        Ok(())
    }
}

/// Whether the row needs only the argmax: greedy sampling without mask, penalties or logprobs.
pub(super) fn is_argmax(row: &SampleRow<'_>) -> bool {
    let Sampling { temperature, seed, .. } = *row.sampling;
    let greedy = Sampling { temperature, seed, ..Sampling::default() };
    temperature == 0.0 && *row.sampling == greedy && row.mask.is_none() && row.logprobs.is_none()
}
