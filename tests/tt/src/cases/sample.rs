//! Choosing tokens.

use muse_core::Result;
use muse_core::contract::{Backend, History, SampleRow, Sampling};
use muse_core::quant::tile::{SIDE, TileFormat};
use muse_tt::{Ids, Matrix, op};

use crate::lane::Needs;

use super::{Bench, Case, Kind, On, Outcome, case, values};

/// A verify of the published model: rows of a block, and its vocabulary. On the grid alone, for
/// looking at so many scores takes a simulator minutes.
const VERIFY: (usize, usize) = (16, 202_048);

/// Both formats of scores, and widths that leave columns of the last tile to nobody.
pub(super) fn cases(on: On) -> impl Iterator<Item = Case> {
    let shapes = [(7, 70), (33, 200), (16, 1000)];
    let verify = matches!(on, On::Grid).then_some((TileFormat::Bf16, VERIFY));
    let formats = [TileFormat::Bf16, TileFormat::F32].into_iter();
    let small = formats.flat_map(move |format| shapes.map(|shape| (format, shape)));
    verify.into_iter().chain(small).map(move |(format, (rows, cols))| {
        let quick = matches!((on, cols, format), (On::Row, 70, TileFormat::Bf16));
        let name = format!("argmax_{}", format.name().to_lowercase());
        let needs = if cols < 1000 { Needs::Little } else { Needs::Speed };
        let run = move |bench: &mut Bench| bench.argmax(format, rows, cols, on);
        case(&name, rows, cols, on, quick, needs, run)
    })
}

/// Scores with many equal ones, all below zero in every other row so that filling would win; rows of
/// both zeros alone, of minus infinity, and with what is no number.
fn scores(rows: usize, cols: usize) -> Vec<f32> {
    let mut scores = values(rows * cols, 15);
    for (row, scores) in scores.chunks_exact_mut(cols).enumerate() {
        for (column, score) in scores.iter_mut().enumerate() {
            *score = match row {
                1 => [-0.0, 0.0][usize::from(column > 2)],
                2 => f32::NEG_INFINITY,
                3 if column % 5 == 0 => f32::NAN,
                row if row % 2 == 0 => -1.0 - score.abs().floor(),
                _ => (4.0 * *score).floor(),
            };
        }
    }
    scores
}

impl Bench {
    fn argmax(&mut self, format: TileFormat, rows: usize, cols: usize, on: On) -> Result<Outcome> {
        let (scores, cores, device) = (scores(rows, cols), on.cores(self), self.programs.device());
        let matrix = Matrix::of(device, format, &scores, cols)?;
        let partials = Ids::in_pages(device, cores.count() as usize, op::PARTIAL_NUMBERS * rows)?;
        let columns = Ids::in_pages(device, 1, rows)?;
        let [find, combine] = op::argmax(&matrix, rows as u32, &partials, &columns, cores);
        self.programs.run(&find, true)?;
        self.programs.run(&combine, true)?;
        (self.due.read, self.due.written) = (matrix.bytes(), columns.bytes());
        self.due.cores = on.busy(self, cols.div_ceil(SIDE));
        let found = self.due.cores * partials.bytes() / u64::from(cores.count());
        for kind in [Kind::Read, Kind::Written] {
            self.due.beyond(kind, found, "what each core finds");
        }
        let got: Vec<f32> = columns.read()?[..rows].iter().map(|column| *column as f32).collect();
        let (sampling, history) = (Sampling::default(), History::default());
        let pick = |row| SampleRow {
            row,
            sampling: &sampling,
            history: &history,
            drafted: &[],
            mask: None,
            position: 0,
            logprobs: None,
        };
        let asked: Vec<SampleRow<'_>> = (0..rows).map(pick).collect();
        let mut picked = Vec::new();
        self.cpu.sample(&self.on_cpu(&scores, cols)?, &asked, &mut picked)?;
        let want: Vec<f32> = picked.iter().map(|picked| picked.token.0 as f32).collect();
        Ok(Outcome::exact(&got, &want))
    }
}
