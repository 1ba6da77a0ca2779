//! Frequencies of the rotary embeddings in use.

use std::sync::OnceLock;

use muse_core::contract::Rope;

/// A list that only grows, so that it is read without a lock.
#[derive(Debug, Default)]
pub(crate) struct Rotary(OnceLock<Box<Frequencies>>);

#[derive(Debug)]
struct Frequencies {
    rope: Rope,
    values: Vec<f32>,
    next: Rotary,
}

impl Rotary {
    /// `theta^(-2j / head_dim)`, computed once for each geometry.
    pub(crate) fn frequencies(&self, rope: &Rope) -> &[f32] {
        let mut list = self;
        loop {
            let entry = list.0.get_or_init(|| {
                let exponent = |j: usize| -2.0 * j as f64 / rope.head_dim as f64;
                let values = (0..rope.head_dim / 2)
                    .map(|j| f64::from(rope.theta).powf(exponent(j)) as f32)
                    .collect();
                Box::new(Frequencies { rope: *rope, values, next: Self::default() })
            });
            if entry.rope == *rope {
                return &entry.values;
            }
            list = &entry.next;
        }
    }
}
