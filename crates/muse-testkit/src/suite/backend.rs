//! Operation tests of [`Backend`] against plain `f64` arithmetic, and of its promise that a row's
//! bits do not depend on its company.

mod attention;
mod data;
mod pages;
mod rows;

use muse_core::contract::Backend;

pub use attention::{
    attention_batch_and_chunks_change_no_bit, attention_over_every_cache_type,
    attention_reads_values_as_stored, attention_sees_what_the_mask_says,
    returned_pages_are_never_touched,
};
pub use pages::{page_copies_move_the_rows_asked, saved_pages_come_back};
pub use rows::{
    copies_place_rows_and_columns, elementwise_operations, embeddings_are_table_rows,
    linear_in_every_format, norms_by_row_and_by_head, picks_follow_the_sampler,
    rope_turns_pairs_by_position, row_operations_ignore_company, writes_read_back,
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
        $crate::backend_suite!(@tests $device, $tolerance;
            writes_read_back
            copies_place_rows_and_columns
            embeddings_are_table_rows
            linear_in_every_format
            norms_by_row_and_by_head
            rope_turns_pairs_by_position
            elementwise_operations
            picks_follow_the_sampler
            row_operations_ignore_company
            attention_sees_what_the_mask_says
            attention_over_every_cache_type
            attention_reads_values_as_stored
            attention_batch_and_chunks_change_no_bit
            returned_pages_are_never_touched
            page_copies_move_the_rows_asked
            saved_pages_come_back
        );
    };
    (@tests $device:expr, $tolerance:expr; $($test:ident)*) => {
        $(
            #[test]
            fn $test() {
                let device = $device;
                $crate::suite::backend::$test(&$crate::suite::backend::Subject {
                    device: &device,
                    tolerance: $tolerance,
                });
            }
        )*
    };
}

/// A device under test.
#[derive(Debug)]
pub struct Subject<'a, B: Backend> {
    /// The device.
    pub device: &'a B,
    /// Error allowed, relative to the magnitude of what is summed.
    pub tolerance: f64,
}

impl<B: Backend> Subject<'_, B> {
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

    /// Panics unless each value is within `tolerance · magnitude` of the wanted one.
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
