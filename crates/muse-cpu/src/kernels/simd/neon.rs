//! [`Simd`] in NEON (Advanced SIMD): 4 lanes.

use std::arch::aarch64::*;

use muse_core::quant::q8_0;

use super::Simd;
use crate::layout::{self, Layout, layout};

/// Proof of Advanced SIMD.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    /// Proof that the features are enabled: only functions compiled with them can call this without
    /// `unsafe`.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(crate) fn enabled() -> Self {
        Self(())
    }
}

impl Simd for Neon {
    type Vector = float32x4_t;
    const LANES: usize = 4;

    #[inline(always)]
    fn zero(self) -> float32x4_t {
        self.splat(0.0)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> float32x4_t {
        // SAFETY: `self` proves Advanced SIMD.
        unsafe { vdupq_n_f32(x) }
    }

    #[inline(always)]
    fn fma(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        // SAFETY: `self` proves Advanced SIMD.
        unsafe { vfmaq_f32(c, a, b) }
    }

    #[inline(always)]
    fn mul(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: `self` proves Advanced SIMD.
        unsafe { vmulq_f32(a, b) }
    }

    #[inline(always)]
    fn sum_lanes(self, vectors: [float32x4_t; 4]) -> [f32; 4] {
        // SAFETY: `self` proves Advanced SIMD.
        vectors.map(|v| unsafe { vaddvq_f32(v) })
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> float32x4_t {
        // SAFETY: the caller guarantees 4 values.
        unsafe { vld1q_f32(from) }
    }

    #[inline(always)]
    unsafe fn load_partial(self, from: *const f32, n: usize) -> float32x4_t {
        let mut padded = [0.0; 4];
        // SAFETY: the caller guarantees `n < 4` values.
        let part = unsafe { std::slice::from_raw_parts(from, n) };
        padded[..n].copy_from_slice(part);
        // SAFETY: `padded` has 4 values.
        unsafe { self.load(padded.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, vector: float32x4_t) {
        // SAFETY: the caller guarantees 4 values.
        unsafe { vst1q_f32(to, vector) }
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut f32, vector: float32x4_t, n: usize) {
        let mut padded = [0.0; 4];
        // SAFETY: `padded` has 4 values.
        unsafe { self.store(padded.as_mut_ptr(), vector) };
        // SAFETY: the caller guarantees `n < 4` values.
        let part = unsafe { std::slice::from_raw_parts_mut(to, n) };
        part.copy_from_slice(&padded[..n]);
    }

    #[inline(always)]
    unsafe fn decode<const LAYOUT: u8>(self, row: *const u8, at: usize) -> float32x4_t {
        // SAFETY: the caller guarantees the bytes; `self` proves Advanced SIMD.
        unsafe { decode::<LAYOUT>(row, at) }
    }

    #[inline(always)]
    unsafe fn decode_partial<const LAYOUT: u8>(
        self,
        row: *const u8,
        at: usize,
        n: usize,
    ) -> float32x4_t {
        let width = layout::<LAYOUT>().format().block_bytes();
        // SAFETY: the caller guarantees `n` values at `at`.
        let row = unsafe { std::slice::from_raw_parts(row.wrapping_add(at * width), n * width) };
        let mut padded = [0.0; 4];
        for (i, value) in padded[..n].iter_mut().enumerate() {
            *value = layout::value::<LAYOUT>(row, i);
        }
        // SAFETY: `padded` has 4 values.
        unsafe { self.load(padded.as_ptr()) }
    }
}

#[inline]
#[target_feature(enable = "neon")]
unsafe fn decode<const LAYOUT: u8>(row: *const u8, at: usize) -> float32x4_t {
    match layout::<LAYOUT>() {
        Layout::F32 => {
            // SAFETY: the caller guarantees 4 values at `at`.
            unsafe { vld1q_f32(row.cast::<f32>().wrapping_add(at)) }
        }
        Layout::F16 => {
            // The intrinsic for the conversion instruction is not stable.
            // SAFETY: as above, of 2 bytes each.
            let raw = unsafe { row.cast::<[[u8; 2]; 4]>().wrapping_byte_add(2 * at).read() };
            let values = raw.map(|bytes| half::f16::from_le_bytes(bytes).to_f32());
            // SAFETY: `values` has 4 values.
            unsafe { vld1q_f32(values.as_ptr()) }
        }
        Layout::Bf16 => {
            // SAFETY: as above, of 2 bytes each.
            let raw = unsafe { vld1_u16(row.wrapping_add(2 * at).cast()) };
            vreinterpretq_f32_u32(vshll_n_u16::<16>(raw))
        }
        Layout::Q8_0 => {
            let block = row.wrapping_add(at / q8_0::VALUES * q8_0::BYTES);
            // SAFETY: the block begins with its scale of 2 bytes.
            let scale = unsafe { block.cast::<[u8; 2]>().read() };
            let scale = half::f16::from_le_bytes(scale).to_f32();
            let values = block.wrapping_add(2 + at % q8_0::VALUES).cast::<[i8; 4]>();
            // SAFETY: `at` is a multiple of 4, so 4 of the block's 32 bytes lie there.
            let values = unsafe { values.read() }.map(|x| f32::from(x) * scale);
            // SAFETY: `values` has 4 values.
            unsafe { vld1q_f32(values.as_ptr()) }
        }
    }
}
