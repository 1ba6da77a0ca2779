//! The operations of the model, each as a plan of kernels. A plan decides which core computes what;
//! the kernels in `kernels/` say how.

/// The source of a kernel, behind the headers that it uses.
macro_rules! kernel {
    ($($part:literal),+) => { concat!($(include_str!(concat!("../../kernels/", $part))),+) };
}

mod argmax;
mod attend;
mod copy;
mod elementwise;
mod embed;
mod matmul;
mod parts;
mod rms_norm;
mod rope;
mod write_kv;

pub use argmax::{ARGMAX_PARTIAL_WORDS, argmax};
pub use attend::{KV_SPLIT_BLOCKS, attend, attend_partials};
pub use copy::copy;
pub use elementwise::{Binary, Unary, binary, unary};
pub use embed::embed;
pub use matmul::matmul;
pub use rms_norm::{head_norm, rms_norm};
pub use rope::{RopeTable, rope};
pub use write_kv::write_kv;

#[cfg(test)]
mod tests {
    use muse_core::contract::{KvGroup, KvShape, KvType, Rope};
    use muse_core::quant::tile::TileFormat;

    use super::*;
    use crate::fake;
    use crate::{Cores, Device, EmbeddingTable, IndexBuffer, KvCache, Matrix, Plan, Weight};

    /// With the widths of the published model, operations use one core, a row of cores and the
    /// grid.
    #[test]
    fn work_of_the_published_model_fills_the_cores() {
        let device = Device::open(fake::library(), fake::OPTIONS).unwrap();
        let bf16 = TileFormat::Bf16;
        let matrix = |rows, cols| Matrix::new(&device, bf16, rows, cols).unwrap();
        let indices = |count: usize| IndexBuffer::with_pages(&device, 130, count).unwrap();
        let (x, scale) = (matrix(32, 6656), matrix(1, 6656));
        let (chunk, q, k) = (matrix(160, 6656), matrix(160, 4096), matrix(576, 256));
        let head_scale = matrix(1, 128);
        let zeros = vec![0.0; 4160 * 64];
        let weight = Weight::from_values(&device, TileFormat::Bfp4, &zeros, 64).unwrap();
        let embedding = EmbeddingTable::from_values(&device, &zeros[..6656], 6656).unwrap();
        let rope_of_model = Rope { head_dim: 128, theta: 5e5 };
        let table = RopeTable::new(&device, &rope_of_model, 8).unwrap();
        let (kind, group) = (KvType::Bf16, KvGroup::Full);
        let shape = KvShape { group, blocks: 1, kv_heads: 2, head_dim: 128, kind };
        let cache = KvCache::new(&device, shape).unwrap();
        let (few, many) = (indices(32), indices(576));
        let used = |plan: &dyn Fn(Cores) -> Plan| {
            [(1, 1), (13, 1), (13, 10)]
                .map(|(columns, rows)| plan(Cores::grid(columns, rows)).cores())
        };
        for (name, used) in [
            ("add", used(&|cores| binary(Binary::Add, &x, &x, &x, cores))),
            ("scale", used(&|cores| unary(Unary::Scale(2.0), &x, &x, cores))),
            ("matmul", used(&|cores| matmul(&matrix(32, 64), &weight, &matrix(32, 4160), cores))),
            ("head_norm", used(&|cores| head_norm(&q, &head_scale, 1e-5, &q, cores))),
            ("rope", used(&|cores| rope(&q, &many, &table, &q, cores))),
            ("embed", used(&|cores| embed(&embedding, &few, 32, &x, cores))),
            ("copy", used(&|cores| copy(&x, &few, 32, &x, (0, 0), cores))),
            ("write_kv", used(&|cores| write_kv(&k, &k, &many, &cache, cores))),
            ("argmax", used(&|cores| argmax(&x, 16, &few, &few, cores)[0].clone())),
        ] {
            assert_eq!(used, [1, 13, 130], "{name}");
        }
        // The 26 groups of a row limit how many cores share it; five rows share the grid equally.
        assert_eq!(used(&|cores| rms_norm(&x, Some(&scale), 1e-5, &x, cores)), [1, 13, 26]);
        let of_chunk = used(&|cores| rms_norm(&chunk, Some(&scale), 1e-5, &chunk, cores));
        assert_eq!(of_chunk, [1, 10, 130]);
    }
}
