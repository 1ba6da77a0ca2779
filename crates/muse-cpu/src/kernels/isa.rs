//! The instruction sets of this CPU, detected once.

use std::fmt;
use std::sync::OnceLock;

/// An instruction set that this CPU has. Values exist only for detected instruction sets, so a
/// value proves that kernels for it may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Level);

/// The instruction sets that kernels are written for, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The baseline of the target; kernels for it are the reference.
    Scalar,
    /// AVX2 with FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, DQ and VL, and AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// AVX-512 with dot products of bytes (VNNI).
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// AVX-512 with dot products of bytes (VNNI) and of BF16.
    #[cfg(target_arch = "x86_64")]
    Bf16,
    /// Advanced SIMD (NEON), which every 64-bit ARM CPU has.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// NEON with dot products of bytes.
    #[cfg(target_arch = "aarch64")]
    Dotprod,
}

impl Isa {
    /// All instruction sets of this CPU, slowest first; the first is [`Isa::scalar`].
    pub fn available() -> &'static [Self] {
        static FOUND: OnceLock<Vec<Isa>> = OnceLock::new();
        FOUND.get_or_init(|| detect().into_iter().map(Self).collect())
    }

    /// The fastest instruction set of this CPU.
    pub fn best() -> Self {
        *Self::available().last().expect("the scalar reference always runs")
    }

    /// The instruction set of the reference kernels, which every CPU has.
    pub fn scalar() -> Self {
        Self(Level::Scalar)
    }

    /// Which instruction set it is.
    pub fn level(self) -> Level {
        self.0
    }

    /// Its name, as `MUSE_EXPECT_ISA` spells it.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Level::Vnni => "avx512vnni",
            #[cfg(target_arch = "x86_64")]
            Level::Bf16 => "avx512bf16",
            #[cfg(target_arch = "aarch64")]
            Level::Neon => "neon",
            #[cfg(target_arch = "aarch64")]
            Level::Dotprod => "neondot",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Vec<Level> {
    let mut found = vec![Level::Scalar];
    if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
    {
        found.push(Level::Avx2);
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            found.push(Level::Avx512);
            if is_x86_feature_detected!("avx512vnni") {
                found.push(Level::Vnni);
                if is_x86_feature_detected!("avx512bf16") {
                    found.push(Level::Bf16);
                }
            }
        }
    }
    found
}

#[cfg(target_arch = "aarch64")]
fn detect() -> Vec<Level> {
    let mut found = vec![Level::Scalar, Level::Neon];
    if std::arch::is_aarch64_feature_detected!("dotprod") {
        found.push(Level::Dotprod);
    }
    found
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> Vec<Level> {
    vec![Level::Scalar]
}
