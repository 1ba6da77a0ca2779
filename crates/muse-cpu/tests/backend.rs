//! The backend suite on the CPU, in every instruction set and on several threads.

use muse_cpu::{Cpu, CpuOptions, Isa};

/// A CPU with kernels of the named instruction set; the best one where this machine lacks it,
/// which `MUSE_EXPECT_ISA` turns into a failure.
fn cpu(isa: &str, threads: usize) -> Cpu {
    let found = Isa::available().iter().find(|found| found.name() == isa);
    let isa = found.copied().unwrap_or_else(Isa::best);
    Cpu::with_isa(CpuOptions { threads: Some(threads) }, isa).unwrap()
}

mod scalar {
    muse_testkit::suite::backend!(super::cpu("scalar", 1).exact());
}

mod avx2 {
    muse_testkit::suite::backend!(super::cpu("avx2", 1).exact());
}

mod best {
    muse_testkit::suite::backend!(super::cpu("best", 1).exact());
}

mod shared {
    muse_testkit::suite::backend!(super::cpu("best", 3).exact());
}

/// Activations of eight bits are off by up to 1/254 of the largest in their block.
mod packed_scalar {
    muse_testkit::suite::backend!(super::cpu("scalar", 1), tolerance = 1e-2);
}

mod packed_avx2 {
    muse_testkit::suite::backend!(super::cpu("avx2", 1), tolerance = 1e-2);
}

mod packed {
    muse_testkit::suite::backend!(super::cpu("best", 3), tolerance = 1e-2);
}

#[test]
fn expected_instruction_sets_are_here() {
    let found: Vec<_> = Isa::available().iter().map(|isa| isa.name()).collect();
    muse_testkit::assert_expected_isa(&found);
}
