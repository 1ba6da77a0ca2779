//! The vector primitives that tiles are written in: one file an instruction set.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;

/// An instruction set whose presence the value proves: it can be made only inside functions
/// compiled for it. Methods must be inlined into such a function to be fast.
pub(crate) trait Simd: Copy {
    /// A vector of `f32`.
    type Vector: Copy;
    /// Its width, a divisor of 32.
    const LANES: usize;

    fn zero(self) -> Self::Vector;
    fn splat(self, x: f32) -> Self::Vector;
    /// `a · b + c`, rounded once.
    fn fma(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The sum of the lanes of each, always in the same order.
    fn sums(self, vectors: [Self::Vector; 4]) -> [f32; 4];

    /// # Safety
    /// `from` is valid for reads of [`Self::LANES`] values.
    unsafe fn load(self, from: *const f32) -> Self::Vector;
    /// The first `n < LANES` values, then zeros.
    ///
    /// # Safety
    /// `from` is valid for reads of `n` values.
    unsafe fn load_part(self, from: *const f32, n: usize) -> Self::Vector;
    /// # Safety
    /// `to` is valid for writes of [`Self::LANES`] values.
    unsafe fn store(self, to: *mut f32, vector: Self::Vector);
    /// Writes the first `n < LANES` values.
    ///
    /// # Safety
    /// `to` is valid for writes of `n` values.
    unsafe fn store_part(self, to: *mut f32, vector: Self::Vector, n: usize);
    /// Decodes values `at .. at + LANES` of a row in a [`crate::Layout`].
    ///
    /// # Safety
    /// `row` is valid for reads of the blocks that hold them; `at` is a multiple of
    /// [`Self::LANES`].
    unsafe fn decode<const LAYOUT: u8>(self, row: *const u8, at: usize) -> Self::Vector;
    /// Decodes values `at .. at + n`, `n < LANES`, then zeros. Only layouts of single values have
    /// such ends.
    ///
    /// # Safety
    /// As for [`Self::decode`].
    unsafe fn decode_part<const LAYOUT: u8>(
        self,
        row: *const u8,
        at: usize,
        n: usize,
    ) -> Self::Vector;
}
