//! Argmax of logits.

use muse_core::Result;
use muse_core::contract::{Backend, History, SampleRow, Sampling};
use muse_core::quant::tile::{SIDE, TileFormat};
use muse_tt::{IndexBuffer, Matrix, op};

use crate::lane::Requirement;

use super::{Case, CoreSet, CostKind, Harness, Outcome, case, values};

/// Tokens of a verify step and vocabulary of the published model. Only on the grid, because
/// scanning so many logits takes a simulator minutes.
const VERIFY: (usize, usize) = (16, 202_048);

/// Both formats of logits, and widths with padding in the last tile.
pub(super) fn cases(core_set: CoreSet) -> impl Iterator<Item = Case> {
    let shapes = [(7, 70), (33, 200), (16, 1000)];
    let verify = matches!(core_set, CoreSet::Grid).then_some((TileFormat::Bf16, VERIFY));
    let formats = [TileFormat::Bf16, TileFormat::F32].into_iter();
    let small = formats.flat_map(move |format| shapes.map(|shape| (format, shape)));
    verify.into_iter().chain(small).map(move |(format, (rows, cols))| {
        let quick = matches!((core_set, cols, format), (CoreSet::Row, 70, TileFormat::Bf16));
        let name = format!("argmax_{}", format.name().to_lowercase());
        let requirement = if cols < 1000 { Requirement::Basic } else { Requirement::Speed };
        let run = move |harness: &mut Harness| harness.argmax(format, rows, cols, core_set);
        case(&name, rows, cols, core_set, quick, requirement, run)
    })
}

/// Logits with many ties, negative in every other row, where padding of zeros would be the maximum.
/// Row 1 has zeros of both signs, row 2 minus infinity, row 3 NaN among its values.
fn logits(rows: usize, cols: usize) -> Vec<f32> {
    let mut logits = values(rows * cols, 15);
    for (row, logits) in logits.chunks_exact_mut(cols).enumerate() {
        for (column, logit) in logits.iter_mut().enumerate() {
            *logit = match row {
                1 => [-0.0, 0.0][usize::from(column > 2)],
                2 => f32::NEG_INFINITY,
                3 if column % 5 == 0 => f32::NAN,
                row if row % 2 == 0 => -1.0 - logit.abs().floor(),
                _ => (4.0 * *logit).floor(),
            };
        }
    }
    logits
}

impl Harness {
    fn argmax(
        &mut self,
        format: TileFormat,
        rows: usize,
        cols: usize,
        core_set: CoreSet,
    ) -> Result<Outcome> {
        let (logits, cores, device) =
            (logits(rows, cols), core_set.cores(self), self.programs.device());
        let matrix = Matrix::from_values(device, format, &logits, cols)?;
        let partials = IndexBuffer::with_pages(
            device,
            cores.count() as usize,
            op::ARGMAX_PARTIAL_WORDS * rows,
        )?;
        let columns = IndexBuffer::with_pages(device, 1, rows)?;
        let [find, combine] = op::argmax(&matrix, rows as u32, &partials, &columns, cores);
        self.programs.run(&find, true)?;
        self.programs.run(&combine, true)?;
        (self.expected.read, self.expected.written) = (matrix.bytes(), columns.bytes());
        self.expected.cores = core_set.busy(self, cols.div_ceil(SIDE));
        let partial_bytes = self.expected.cores * partials.bytes() / u64::from(cores.count());
        for kind in [CostKind::Read, CostKind::Written] {
            self.expected.overhead(kind, partial_bytes, "the results of each core");
        }
        let actual: Vec<f32> =
            columns.read()?[..rows].iter().map(|column| *column as f32).collect();
        let (sampling, history) = (Sampling::default(), History::default());
        let request = |row| SampleRow {
            row,
            sampling: &sampling,
            history: &history,
            drafted: &[],
            mask: None,
            position: 0,
            logprobs: None,
        };
        let requests: Vec<SampleRow<'_>> = (0..rows).map(request).collect();
        let mut sampled = Vec::new();
        self.cpu.sample(&self.on_cpu(&logits, cols)?, &requests, &mut sampled)?;
        let reference: Vec<f32> = sampled.iter().map(|sampled| sampled.token.0 as f32).collect();
        Ok(Outcome::exact(&actual, &reference))
    }
}
