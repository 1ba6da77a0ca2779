//! Tests of the operations of a [`Backend`] against `f64` arithmetic, and of batch invariance: the
//! bits of a row do not depend on the other rows of a call.

mod attention;
mod blocks;
mod data;
mod rows;
mod vision;

use muse_core::contract::{Backend, KvType};

use data::Noise;

pub use attention::{
    attention_follows_the_mask, attention_is_invariant_to_batch_and_chunks,
    attention_over_every_cache_type, attention_reads_values_as_stored,
    returned_blocks_are_never_touched,
};
pub use blocks::{block_copies_copy_the_given_positions, saved_blocks_load_alike};
pub use rows::{
    copies_place_rows_and_columns, elementwise_operations, embeddings_are_table_rows,
    linear_in_every_format, no_rows_change_nothing, norms_by_row_and_by_head,
    rope_turns_pairs_by_position, row_operations_are_batch_invariant, samples_follow_the_sampler,
    writes_read_back,
};

pub use vision::{
    gelu_is_the_exact_one, layer_norms_and_biases, pixel_shuffles_put_channels_outermost,
    range_attention_over_every_cache_type, rope_2d_turns_halves_by_coordinates,
    vision_row_operations_are_batch_invariant,
};

/// Expands to one test per operation for the device that the expression opens. `tolerance` is
/// relative to the magnitude of what is summed; a device that computes in `f32` passes the
/// default.
#[macro_export]
macro_rules! backend_suite {
    ($device:expr) => {
        $crate::backend_suite!($device, tolerance = 2e-6);
    };
    ($device:expr, tolerance = $tolerance:expr) => {
        $crate::backend_suite!(@of tests($device, $tolerance));
    };
    (@of $what:ident $with:tt) => {
        $crate::backend_suite! { @$what $with;
            writes_read_back
            copies_place_rows_and_columns
            embeddings_are_table_rows
            linear_in_every_format
            norms_by_row_and_by_head
            rope_turns_pairs_by_position
            elementwise_operations
            samples_follow_the_sampler
            row_operations_are_batch_invariant
            no_rows_change_nothing
            attention_follows_the_mask
            attention_over_every_cache_type
            attention_reads_values_as_stored
            attention_is_invariant_to_batch_and_chunks
            returned_blocks_are_never_touched
            block_copies_copy_the_given_positions
            saved_blocks_load_alike
        }
    };
    (@tests($device:expr, $tolerance:expr); $($test:ident)*) => {
        $(
            #[test]
            fn $test() {
                let device = $device;
                let subject = $crate::suite::backend::Subject::new(&device, $tolerance);
                $crate::suite::backend::$test(&subject);
            }
        )*
    };
    (@table(); $($test:ident)*) => {
        vec![$((stringify!($test), $crate::suite::backend::$test as Test<B>)),*]
    };
}

/// A test of the suite.
pub type Test<B> = fn(&Subject<'_, B>);

/// All of them by name, for devices that are not opened in a test.
pub fn all<B: Backend>() -> Vec<(&'static str, Test<B>)> {
    crate::backend_suite!(@of table())
}

/// A device under test.
#[derive(Debug)]
pub struct Subject<'a, B: Backend> {
    /// The device.
    pub device: &'a B,
    /// Error allowed, relative to the magnitude of what is summed.
    pub tolerance: f64,
    /// What a buffer stores of a value; the value itself by default.
    pub stored: fn(f32) -> f32,
    /// Types of K/V that it supports; all by default.
    pub kinds: &'a [KvType],
    /// Rows and columns of its tiles, 1 by default: widths of heads and of normed rows, and columns at
    /// which copies begin, are multiples of it; rows in the rest of a tile are undefined.
    pub tile: usize,
    /// Positions that it can rotate, from 0.
    pub positions: u32,
    /// Positions of the test that attends one by one: over the end of a KV block.
    pub walk: usize,
}

impl<'a, B: Backend> Subject<'a, B> {
    /// A device that holds every value as it is, in rows and columns of any number.
    pub fn new(device: &'a B, tolerance: f64) -> Self {
        const ALL: &[KvType] = &[KvType::F32, KvType::Bf16, KvType::F16, KvType::Q8_0];
        Self {
            device,
            tolerance,
            stored: |x| x,
            kinds: ALL,
            tile: 1,
            positions: 131_072,
            walk: 150,
        }
    }

    /// Noise in -1 to 1, as buffers hold it.
    fn noise(&self, seed: u64, count: usize) -> Vec<f32> {
        self.held(Noise::new(seed).values(count))
    }

    fn held(&self, mut values: Vec<f32>) -> Vec<f32> {
        values.iter_mut().for_each(|x| *x = (self.stored)(*x));
        values
    }

    /// A buffer of these rows.
    fn buf(&self, rows: usize, data: &[f32]) -> B::Buf {
        let mut buf = self.device.alloc(rows, data.len() / rows).expect("alloc");
        self.device.write(&mut buf, 0, data).expect("write");
        buf
    }

    fn zeros(&self, rows: usize, cols: usize) -> B::Buf {
        self.device.alloc(rows, cols).expect("alloc")
    }

    fn read(&self, buf: &B::Buf, values: usize) -> Vec<f32> {
        let mut out = vec![f32::NAN; values];
        self.device.read(buf, 0, &mut out).expect("read");
        out
    }

    /// Panics unless each value is within `tolerance · magnitude` of the expected one.
    #[track_caller]
    fn assert_close(&self, what: &str, got: &[f32], want: &[Wanted]) {
        assert_eq!(got.len(), want.len(), "{what}: number of values");
        for (i, (&got, want)) in got.iter().zip(want).enumerate() {
            let error = (f64::from(got) - want.value).abs();
            let allowed = self.tolerance * want.magnitude;
            assert!(
                error <= allowed,
                "{what}: value {i} is {got}, should be {}: off by {error:e}, {allowed:e} allowed",
                want.value
            );
        }
    }
}

/// A result in `f64` and the magnitude its error is measured by.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    value: f64,
    magnitude: f64,
}

/// Panics unless all bits are equal.
#[track_caller]
fn assert_same_bits(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}: number of values");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(got.to_bits() == want.to_bits(), "{what}: value {i} is {got:e}, was {want:e}");
    }
}
