//! Compiles a plain loop once per instruction set.

/// `per_isa!(Type = fn(arg: T, ..) -> R, body)` defines `select(isa) -> Type` and `variants()`.
/// `body` must be `#[inline(always)]`, so that it is compiled with the features of the functions
/// that the macro makes.
macro_rules! per_isa {
    ($kernel:ty = fn($($arg:ident: $ty:ty),*) $(-> $out:ty)?, $body:path) => {
        /// The kernel for an instruction set.
        pub fn select(isa: $crate::kernels::isa::Isa) -> $kernel {
            #[cfg(target_arch = "x86_64")]
            fn avx2($($arg: $ty),*) $(-> $out)? {
                #[target_feature(enable = "avx2,fma,f16c")]
                fn compiled($($arg: $ty),*) $(-> $out)? {
                    $body($($arg),*)
                }
                // SAFETY: only the match below names this function, and its `isa` proves that the
                // CPU has these features.
                unsafe { compiled($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            fn avx512($($arg: $ty),*) $(-> $out)? {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
                fn compiled($($arg: $ty),*) $(-> $out)? {
                    $body($($arg),*)
                }
                // SAFETY: only the match below names this function, and its `isa` proves that the
                // CPU has these features.
                unsafe { compiled($($arg),*) }
            }
            match isa.level() {
                $crate::kernels::isa::Level::Scalar => $body,
                #[cfg(target_arch = "x86_64")]
                $crate::kernels::isa::Level::Avx2 => avx2,
                #[cfg(target_arch = "x86_64")]
                $crate::kernels::isa::Level::Avx512
                | $crate::kernels::isa::Level::Vnni
                | $crate::kernels::isa::Level::Bf16 => avx512,
                // Every 64-bit ARM CPU has NEON: plain loops are compiled for it anyway.
                #[cfg(target_arch = "aarch64")]
                $crate::kernels::isa::Level::Neon | $crate::kernels::isa::Level::Dotprod => $body,
            }
        }

        /// Every kernel that this CPU can run, with the name of its instruction set; the first is
        /// the definition.
        pub fn variants() -> impl Iterator<Item = (&'static str, $kernel)> {
            $crate::kernels::isa::Isa::available().iter().map(|&isa| (isa.name(), select(isa)))
        }
    };
}

pub(crate) use per_isa;
