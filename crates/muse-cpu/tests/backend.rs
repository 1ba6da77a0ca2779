//! The backend suite on the CPU, for several instruction sets and numbers of threads.

use muse_cpu::{Cpu, CpuOptions, Isa};

/// The CPU with the fastest kernels.
fn fastest(threads: usize) -> Cpu {
    Cpu::new(CpuOptions { threads: Some(threads) }).unwrap()
}

/// The CPU with kernels for the named instruction set. Where this machine lacks it, the calling
/// test ends and is reported as skipped.
macro_rules! cpu_with {
    ($isa:literal) => {
        match muse_cpu::Isa::available().iter().find(|isa| isa.name() == $isa) {
            Some(isa) => {
                let options = muse_cpu::CpuOptions { threads: Some(1) };
                muse_cpu::Cpu::with_isa(options, *isa).unwrap()
            }
            None => {
                let test = std::thread::current().name().unwrap_or(module_path!()).to_owned();
                return muse_testkit::report_skipped(&test, $isa);
            }
        }
    };
}

mod scalar {
    muse_testkit::suite::backend!(cpu_with!("scalar").exact());
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    muse_testkit::suite::backend!(cpu_with!("avx2").exact());
}

mod fastest {
    muse_testkit::suite::backend!(super::fastest(1).exact());
}

mod vision_scalar {
    muse_testkit::suite::vision_ops!(cpu_with!("scalar"), tolerance = 2e-6);
}

#[cfg(target_arch = "x86_64")]
mod vision_avx2 {
    muse_testkit::suite::vision_ops!(cpu_with!("avx2"), tolerance = 2e-6);
}

mod vision_exact {
    muse_testkit::suite::vision_ops!(super::fastest(3).exact(), tolerance = 2e-6);
}

// With BF16 keys and values, queries and softmax weights are rounded to BF16.
mod vision_fastest {
    muse_testkit::suite::vision_ops!(super::fastest(3), tolerance = 4e-3);
}

mod fastest_on_three_threads {
    muse_testkit::suite::backend!(super::fastest(3).exact());
}

// Quantizing an activation to eight bits moves it by up to 1/254 of the largest value of its block.

mod packed_scalar {
    muse_testkit::suite::backend!(cpu_with!("scalar"), tolerance = 1e-2);
}

#[cfg(target_arch = "x86_64")]
mod packed_avx2 {
    muse_testkit::suite::backend!(cpu_with!("avx2"), tolerance = 1e-2);
}

mod packed_fastest {
    muse_testkit::suite::backend!(super::fastest(3), tolerance = 1e-2);
}

#[test]
fn expected_instruction_sets_are_here() {
    let found: Vec<_> = Isa::available().iter().map(|isa| isa.name()).collect();
    muse_testkit::assert_expected_isa(&found);
}
