//! The expected cost of a case: the minimum for its shapes plus known overhead, and its comparison
//! with the measured cost.

use std::fmt;

use muse_tt::KernelCost;

/// The measured cost may be this many times the expected one.
const MAX_RATIO: f64 = 1.05;

/// Multiply-adds of one tile product.
pub(super) const TILE_PRODUCT: u64 = 32 * 32 * 32;

/// A kind of cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostKind {
    /// Bytes read from DRAM.
    Read,
    /// Bytes written to DRAM.
    Written,
    /// Bytes from core to core.
    CoreToCore,
    /// Multiply-adds of tile products.
    Products,
}

/// The expected cost of a case. The minimum is every input once and every result once; it follows
/// from the shapes of the case alone, never from the tested plan.
#[derive(Clone, Debug, Default)]
pub struct ExpectedCost {
    /// Minimum of bytes read from DRAM.
    pub read: u64,
    /// Minimum of bytes written to DRAM.
    pub written: u64,
    /// Minimum of multiply-adds.
    pub products: u64,
    /// Additional cost, and its reason.
    overhead: Vec<(CostKind, u64, &'static str)>,
    /// Cores that should be busy.
    pub cores: u64,
}

impl ExpectedCost {
    /// Adds an amount to the expected cost, for a reason.
    pub(super) fn overhead(&mut self, kind: CostKind, amount: u64, why: &'static str) {
        match self.overhead.iter_mut().find(|(of, _, reason)| (*of, *reason) == (kind, why)) {
            Some((_, sum, _)) => *sum += amount,
            None if amount > 0 => self.overhead.push((kind, amount, why)),
            None => {}
        }
    }

    fn minimum(&self, kind: CostKind) -> u64 {
        match kind {
            CostKind::Read => self.read,
            CostKind::Written => self.written,
            CostKind::CoreToCore => 0,
            CostKind::Products => self.products,
        }
    }

    fn total(&self, kind: CostKind) -> u64 {
        let overhead = self.overhead.iter().filter(|(of, ..)| *of == kind);
        self.minimum(kind) + overhead.map(|(_, amount, _)| amount).sum::<u64>()
    }
}

/// The measured and the expected cost of a case.
#[derive(Clone, Debug)]
pub struct CostReport {
    /// Measured.
    pub cost: KernelCost,
    /// ExpectedCost.
    pub expected: ExpectedCost,
}

impl CostReport {
    const KINDS: [(CostKind, &'static str); 4] = [
        (CostKind::Read, "DRAM bytes read"),
        (CostKind::Written, "written"),
        (CostKind::CoreToCore, "between cores"),
        (CostKind::Products, "multiply-adds"),
    ];

    fn measured(&self, kind: CostKind) -> u64 {
        match kind {
            CostKind::Read => self.cost.dram_read,
            CostKind::Written => self.cost.dram_written,
            CostKind::CoreToCore => self.cost.core_to_core,
            CostKind::Products => self.cost.multiply_adds,
        }
    }

    /// Whether the measured cost is at least the expected one, as less means that something was not
    /// counted, and at most 5 % more, and exactly the expected cores were busy.
    pub fn passes(&self) -> bool {
        let is_near = |kind| {
            let (measured, expected) = (self.measured(kind), self.expected.total(kind));
            measured >= expected && measured as f64 <= MAX_RATIO * expected as f64
        };
        Self::KINDS.into_iter().all(|(kind, _)| is_near(kind))
            && self.cost.cores == self.expected.cores
    }
}

impl fmt::Display for CostReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, name) in Self::KINDS {
            write!(f, "{name} {} (minimum {}", self.measured(kind), self.expected.minimum(kind))?;
            for (_, amount, why) in self.expected.overhead.iter().filter(|(of, ..)| *of == kind) {
                write!(f, " + {amount} for {why}")?;
            }
            f.write_str("); ")?;
        }
        let Self { cost, expected } = self;
        write!(f, "network {}; cores {} of {}", cost.network(), cost.cores, expected.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_and_too_little_cost_and_idle_cores_fail() {
        let mut expected = ExpectedCost {
            read: 900,
            written: 100,
            products: 10,
            cores: 4,
            ..ExpectedCost::default()
        };
        expected.overhead(CostKind::Read, 60, "a reason");
        expected.overhead(CostKind::Read, 40, "a reason");
        let passes = |dram_read, dram_written, core_to_core, cores| {
            let cost =
                KernelCost { dram_read, dram_written, core_to_core, multiply_adds: 10, cores };
            CostReport { cost, expected: expected.clone() }.passes()
        };
        assert!(passes(1000, 100, 0, 4) && passes(1050, 105, 0, 4));
        assert!(!passes(2000, 100, 0, 4) && !passes(999, 100, 0, 4));
        assert!(!passes(1000, 106, 0, 4) && !passes(1000, 100, 1, 4));
        assert!(!passes(1000, 100, 0, 3));
        let text =
            CostReport { cost: KernelCost::default(), expected: expected.clone() }.to_string();
        assert!(text.contains("minimum 900 + 100 for a reason"), "{text}");
    }
}
