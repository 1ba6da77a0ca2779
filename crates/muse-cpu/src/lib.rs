//! The CPU backend: SIMD kernels with a scalar reference beside each.
//!
//! ```
//! use muse_core::contract::{Backend, WeightView};
//! use muse_core::quant::Format;
//! use muse_cpu::{Cpu, CpuOptions};
//!
//! let cpu = Cpu::new(CpuOptions { threads: Some(1) })?;
//! let bytes: Vec<u8> = [1.0_f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
//! let (name, format) = ("w", Format::F32);
//! let weight = cpu.load(WeightView { name, format, rows: 2, cols: 2, bytes: bytes.into() })?;
//! let (mut x, mut y) = (cpu.alloc(1, 2)?, cpu.alloc(1, 2)?);
//! cpu.write(&mut x, 0, &[10.0, 1.0])?;
//! cpu.linear(&x, 1, &mut [(&weight, &mut y)])?;
//! let mut out = [0.0; 2];
//! cpu.read(&y, 0, &mut out)?;
//! assert_eq!(out, [12.0, 34.0]);
//! # Ok::<(), muse_core::Error>(())
//! ```

mod aligned;
mod attention;
mod backend;
mod buf;
pub mod kernels;
mod kv;
mod layout;
mod linear;
mod peaks;
mod pool;
mod quant;
mod rope_frequencies;
mod split;

pub use backend::{Cpu, CpuOptions};
pub use buf::{Buf, Weight};
pub use kernels::Isa;
pub use kv::Kv;
pub use layout::Layout;
pub use peaks::Peaks;
