//! What a case cost, beside the least that it can cost.

use std::fmt;

use muse_tt::Cost;

/// What programs may cost above the least.
const ABOVE: f64 = 1.05;

/// Multiply-adds of a product of two tiles.
pub(super) const TILE_PRODUCT: u64 = 32 * 32 * 32;

/// The least that can be moved and multiplied: every input once, every result once, and what the
/// case says is needed beyond that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Least {
    /// Bytes read from DRAM.
    pub read: u64,
    /// Bytes written to DRAM.
    pub written: u64,
    /// Bytes from core to core.
    pub between: u64,
    /// Multiply-adds of products of tiles.
    pub multiply_adds: u64,
}

/// What was counted, beside the least.
#[derive(Clone, Copy, Debug)]
pub struct Price {
    /// Counted.
    pub cost: Cost,
    /// The least.
    pub least: Least,
}

impl Price {
    /// Whether nothing is above the least by more than 5 %. Less than the least was not counted.
    pub fn passes(&self) -> bool {
        let Self { cost, least } = self;
        let near = |found: u64, least: u64| found >= least && found as f64 <= ABOVE * least as f64;
        near(cost.read, least.read)
            && near(cost.written, least.written)
            && near(cost.between, least.between)
            && near(cost.multiply_adds, least.multiply_adds)
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cost, least } = self;
        write!(
            f,
            "DRAM {} of {} read, {} of {} written; network {}, between cores {} of {}; multiply-adds \
             {} of {}; cores {}",
            cost.read,
            least.read,
            cost.written,
            least.written,
            cost.network(),
            cost.between,
            least.between,
            cost.multiply_adds,
            least.multiply_adds,
            cost.cores
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_twice_or_not_at_all_is_noticed() {
        let least = Least { read: 1000, written: 100, between: 0, multiply_adds: 10 };
        let passes = |read, written, between| {
            let cost = Cost { read, written, between, multiply_adds: 10, cores: 1 };
            Price { cost, least }.passes()
        };
        assert!(passes(1000, 100, 0) && passes(1050, 105, 0));
        assert!(!passes(2000, 100, 0) && !passes(999, 100, 0));
        assert!(!passes(1000, 106, 0) && !passes(1000, 100, 1));
    }
}
