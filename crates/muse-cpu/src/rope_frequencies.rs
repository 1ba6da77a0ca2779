//! The frequencies of rotary position embeddings, cached for each geometry.

use std::sync::OnceLock;

use muse_core::contract::Rope;

/// A list that only grows, so that reading takes no lock.
#[derive(Debug, Default)]
pub(crate) struct RopeFrequencies(OnceLock<Box<Entry>>);

#[derive(Debug)]
struct Entry {
    rope: Rope,
    values: Vec<f32>,
    next: RopeFrequencies,
}

impl RopeFrequencies {
    /// `theta^(-2j / head_dim)` for `j` in `0 .. head_dim / 2`, computed once for each geometry.
    pub(crate) fn of(&self, rope: &Rope) -> &[f32] {
        let mut list = self;
        loop {
            let entry = list.0.get_or_init(|| {
                let exponent = |j: usize| -2.0 * j as f64 / rope.head_dim as f64;
                let values = (0..rope.head_dim / 2)
                    .map(|j| f64::from(rope.theta).powf(exponent(j)) as f32)
                    .collect();
                Box::new(Entry { rope: *rope, values, next: Self::default() })
            });
            if entry.rope == *rope {
                return &entry.values;
            }
            list = &entry.next;
        }
    }
}
