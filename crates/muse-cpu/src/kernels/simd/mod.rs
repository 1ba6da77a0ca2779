//! The vector primitives that the tiles of [`super::gemm`] and [`super::weighted_v_sum`] are
//! written in, one file per instruction set.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;

/// Vector operations of an instruction set. A value proves that the CPU has it: it is made only
/// inside functions compiled with its features. Methods must be inlined into such a function to be
/// fast.
pub(crate) trait Simd: Copy {
    /// A vector of `f32`.
    type Vector: Copy;
    /// Lanes of a vector, a divisor of 32.
    const LANES: usize;

    fn zero(self) -> Self::Vector;
    fn splat(self, x: f32) -> Self::Vector;
    /// `a · b + c`, rounded once.
    fn fma(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The sums of the lanes of four vectors, each added in the same fixed order.
    fn sum_lanes(self, vectors: [Self::Vector; 4]) -> [f32; 4];

    /// # Safety
    /// `from` is valid for reads of [`Self::LANES`] values.
    unsafe fn load(self, from: *const f32) -> Self::Vector;
    /// Loads the first `n < LANES` values; the other lanes are zero.
    ///
    /// # Safety
    /// `from` is valid for reads of `n` values.
    unsafe fn load_partial(self, from: *const f32, n: usize) -> Self::Vector;
    /// # Safety
    /// `to` is valid for writes of [`Self::LANES`] values.
    unsafe fn store(self, to: *mut f32, vector: Self::Vector);
    /// Stores the first `n < LANES` values.
    ///
    /// # Safety
    /// `to` is valid for writes of `n` values.
    unsafe fn store_partial(self, to: *mut f32, vector: Self::Vector, n: usize);
    /// Decodes values `at .. at + LANES` of a row in a [`crate::Layout`].
    ///
    /// # Safety
    /// `row` is valid for reads of the quant blocks that hold them; `at` is a multiple of
    /// [`Self::LANES`].
    unsafe fn decode<const LAYOUT: u8>(self, row: *const u8, at: usize) -> Self::Vector;
    /// Decodes values `at .. at + n`, `n < LANES`; the other lanes are zero. Only layouts without
    /// quant blocks have rows that end so.
    ///
    /// # Safety
    /// As for [`Self::decode`].
    unsafe fn decode_partial<const LAYOUT: u8>(
        self,
        row: *const u8,
        at: usize,
        n: usize,
    ) -> Self::Vector;
}
