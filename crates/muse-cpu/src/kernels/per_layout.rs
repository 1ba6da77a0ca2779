//! Selects among the kernels of a folder: one per instruction set, each for every layout.

/// `per_layout!(Type, function)` defines `select(isa, layout) -> Type` and `variants(layout)` for
/// the functions `function::<LAYOUT>` of the modules `scalar`, `avx2`, `avx512` and `neon` of the
/// same folder.
macro_rules! per_layout {
    ($kernel:ty, $function:ident) => {
        /// The kernel for an instruction set and a layout of the stored rows.
        pub fn select(isa: $crate::kernels::isa::Isa, layout: $crate::layout::Layout) -> $kernel {
            use $crate::kernels::isa::Level;
            use $crate::layout::Layout;

            fn compiled<const LAYOUT: u8>(isa: $crate::kernels::isa::Isa) -> $kernel {
                match isa.level() {
                    Level::Scalar => scalar::$function::<LAYOUT>,
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => avx2::$function::<LAYOUT>,
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 | Level::Vnni | Level::Bf16 => avx512::$function::<LAYOUT>,
                    #[cfg(target_arch = "aarch64")]
                    Level::Neon | Level::Dotprod => neon::$function::<LAYOUT>,
                }
            }
            match layout {
                Layout::F32 => compiled::<{ Layout::F32 as u8 }>(isa),
                Layout::F16 => compiled::<{ Layout::F16 as u8 }>(isa),
                Layout::Bf16 => compiled::<{ Layout::Bf16 as u8 }>(isa),
                Layout::Q8_0 => compiled::<{ Layout::Q8_0 as u8 }>(isa),
            }
        }

        /// Every kernel that this CPU can run, with the name of its instruction set; the first is
        /// the definition.
        pub fn variants(
            layout: $crate::layout::Layout,
        ) -> impl Iterator<Item = (&'static str, $kernel)> {
            let all = $crate::kernels::isa::Isa::available().iter();
            all.map(move |&isa| (isa.name(), select(isa, layout)))
        }
    };
}

pub(crate) use per_layout;
