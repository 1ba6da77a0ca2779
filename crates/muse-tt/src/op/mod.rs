//! The operations of the model, each as a plan of kernels. A plan decides which core does what;
//! the kernels in `kernels/` say how.

/// A kernel behind the headers that it builds on.
macro_rules! kernel {
    ($($part:literal),+) => { concat!($(include_str!(concat!("../../kernels/", $part))),+) };
}

mod argmax;
mod attend;
mod copy;
mod elementwise;
mod embed;
mod matmul;
mod rms_norm;
mod rope;
mod write_kv;

pub use argmax::{PARTIAL_NUMBERS, argmax};
pub use attend::{PIECE_PAGES, attend, attend_partials};
pub use copy::copy;
pub use elementwise::{Binary, Unary, binary, unary};
pub use embed::embed;
pub use matmul::matmul;
pub use rms_norm::{head_norm, rms_norm};
pub use rope::{Rotations, rope};
pub use write_kv::write_kv;

use muse_core::quant::tile::TileFormat;

use crate::matrix::Ids;
use crate::program::{Accessor, CircularBuffer, Kernel, Processor};

/// Where results wait to be written.
const OUT: u32 = 16;

fn pages(index: u32, format: TileFormat, pages: u32) -> CircularBuffer {
    CircularBuffer { index, format, pages, whole: false }
}

/// Pages of F32 values that are only copied to the registers.
fn whole_pages(index: u32, count: u32) -> CircularBuffer {
    CircularBuffer { whole: true, ..pages(index, TileFormat::F32, count) }
}

/// Room for a page of numbers, which needs no format.
fn numbers(index: u32, ids: &Ids) -> CircularBuffer {
    let tile = TileFormat::Bf16;
    pages(index, tile, ids.buffer.page_bytes().div_ceil(tile.bytes() as u32))
}

/// A kernel that reads, and uses so many buffers of the device.
fn reader(source: &'static str, constants: Vec<u32>, buffers: usize) -> Kernel {
    let accessors = vec![Accessor::Dram; buffers];
    Kernel { source, processor: Processor::Reader, constants, accessors, defines: Vec::new() }
}

/// A kernel that writes, and uses so many buffers of the device.
fn writer(source: &'static str, constants: Vec<u32>, buffers: usize) -> Kernel {
    Kernel { processor: Processor::Writer, ..reader(source, constants, buffers) }
}

fn compute(source: &'static str, constants: Vec<u32>, defines: Vec<&'static str>) -> Kernel {
    Kernel { source, processor: Processor::Compute, constants, accessors: Vec::new(), defines }
}

#[cfg(test)]
mod tests {
    use muse_core::contract::{KvGroup, KvShape, KvType, Rope};

    use super::*;
    use crate::fake;
    use crate::{Cores, Device, KvPages, Matrix, Plan, Table, Weight};

    /// One core, a row of them and the grid are all used by the widths of the published model.
    #[test]
    fn work_of_the_published_model_fills_the_cores() {
        let device = Device::open(fake::library(), fake::tests::OPTIONS).unwrap();
        let bf16 = TileFormat::Bf16;
        let matrix = |rows, cols| Matrix::new(&device, bf16, rows, cols).unwrap();
        let ids = |count: usize| Ids::in_pages(&device, 130, count).unwrap();
        let (x, by) = (matrix(32, 6656), matrix(1, 6656));
        let (chunk, q, k) = (matrix(160, 6656), matrix(160, 4096), matrix(576, 256));
        let head = matrix(1, 128);
        let weight = Weight::of(&device, TileFormat::Bfp4, &vec![0.0; 4160 * 64], 64).unwrap();
        let table = Table::of(&device, &vec![0.0; 6656], 6656).unwrap();
        let rope_of = Rope { head_dim: 128, theta: 5e5 };
        let rotations = Rotations::new(&device, &rope_of, 8).unwrap();
        let (kind, group) = (KvType::Bf16, KvGroup::Full);
        let shape = KvShape { group, blocks: 1, kv_heads: 2, head_dim: 128, kind };
        let pages = KvPages::new(&device, shape).unwrap();
        let (small, long) = (ids(32), ids(576));
        let used = |plan: &dyn Fn(Cores) -> Plan| {
            [(1, 1), (13, 1), (13, 10)]
                .map(|(columns, rows)| plan(Cores::grid(columns, rows)).cores())
        };
        for (name, cores) in [
            ("add", used(&|on| binary(Binary::Add, &x, &x, &x, on))),
            ("cap", used(&|on| unary(Unary::Scale(2.0), &x, &x, on))),
            ("matmul", used(&|on| matmul(&matrix(32, 64), &weight, &matrix(32, 4160), on))),
            ("head_norm", used(&|on| head_norm(&q, &head, 1e-5, &q, on))),
            ("rope", used(&|on| rope(&q, &long, &rotations, &q, on))),
            ("embed", used(&|on| embed(&table, &small, 32, &x, on))),
            ("copy", used(&|on| copy(&x, &small, 32, &x, (0, 0), on))),
            ("write_kv", used(&|on| write_kv(&k, &k, &long, &pages, on))),
            ("argmax", used(&|on| argmax(&x, 16, &small, &small, on)[0].clone())),
        ] {
            assert_eq!(cores, [1, 13, 130], "{name}");
        }
        // A tile of rows is shared by as many as it has blocks; five are, by equal numbers.
        assert_eq!(used(&|on| rms_norm(&x, Some(&by), 1e-5, &x, on)), [1, 13, 26]);
        assert_eq!(used(&|on| rms_norm(&chunk, Some(&by), 1e-5, &chunk, on)), [1, 10, 130]);
    }
}
