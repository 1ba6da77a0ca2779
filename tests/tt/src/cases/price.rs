//! What a case cost, beside the least that it can cost and what is knowingly done beyond that.

use std::fmt;

use muse_tt::Cost;

/// What programs may cost above what is due.
const ABOVE: f64 = 1.05;

/// Multiply-adds of a product of two tiles.
pub(super) const TILE_PRODUCT: u64 = 32 * 32 * 32;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes read from DRAM.
    Read,
    /// Bytes written to DRAM.
    Written,
    /// Bytes from core to core.
    Between,
    /// Multiply-adds of products of tiles.
    Products,
}

/// What a case should cost: the least is every input once and every result once, by the shapes of
/// the case alone; never by the plan that is tried.
#[derive(Clone, Debug, Default)]
pub struct Due {
    /// The least bytes to read from DRAM.
    pub read: u64,
    /// The least bytes to write to DRAM.
    pub written: u64,
    /// The least multiply-adds.
    pub products: u64,
    /// What is done beyond the least, and why.
    beyond: Vec<(Kind, u64, &'static str)>,
    /// Cores that should have something to do.
    pub cores: u64,
}

impl Due {
    /// So much more than the least, for a reason.
    pub(super) fn beyond(&mut self, kind: Kind, amount: u64, why: &'static str) {
        match self.beyond.iter_mut().find(|(of, _, reason)| (*of, *reason) == (kind, why)) {
            Some((_, sum, _)) => *sum += amount,
            None if amount > 0 => self.beyond.push((kind, amount, why)),
            None => {}
        }
    }

    fn least(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Read => self.read,
            Kind::Written => self.written,
            Kind::Between => 0,
            Kind::Products => self.products,
        }
    }

    fn all(&self, kind: Kind) -> u64 {
        let beyond = self.beyond.iter().filter(|(of, ..)| *of == kind);
        self.least(kind) + beyond.map(|(_, amount, _)| amount).sum::<u64>()
    }
}

/// What was counted, beside what is due.
#[derive(Clone, Debug)]
pub struct Price {
    /// Counted.
    pub cost: Cost,
    /// Due.
    pub due: Due,
}

impl Price {
    const KINDS: [(Kind, &'static str); 4] = [
        (Kind::Read, "DRAM bytes read"),
        (Kind::Written, "written"),
        (Kind::Between, "between cores"),
        (Kind::Products, "multiply-adds"),
    ];

    fn found(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Read => self.cost.read,
            Kind::Written => self.cost.written,
            Kind::Between => self.cost.between,
            Kind::Products => self.cost.multiply_adds,
        }
    }

    /// Whether nothing is above what is due by more than 5 %, and the cores are those that should
    /// work. Less than what is due was not counted.
    pub fn passes(&self) -> bool {
        let near = |kind| {
            let (found, due) = (self.found(kind), self.due.all(kind));
            found >= due && found as f64 <= ABOVE * due as f64
        };
        Self::KINDS.into_iter().all(|(kind, _)| near(kind)) && self.cost.cores == self.due.cores
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, name) in Self::KINDS {
            write!(f, "{name} {} (least {}", self.found(kind), self.due.least(kind))?;
            for (_, amount, why) in self.due.beyond.iter().filter(|(of, ..)| *of == kind) {
                write!(f, " + {amount} for {why}")?;
            }
            f.write_str("); ")?;
        }
        let Self { cost, due } = self;
        write!(f, "network {}; cores {} of {}", cost.network(), cost.cores, due.cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_twice_or_not_at_all_or_idle_cores_are_noticed() {
        let mut due = Due { read: 900, written: 100, products: 10, cores: 4, ..Due::default() };
        due.beyond(Kind::Read, 60, "a reason");
        due.beyond(Kind::Read, 40, "a reason");
        let passes = |read, written, between, cores| {
            let cost = Cost { read, written, between, multiply_adds: 10, cores };
            Price { cost, due: due.clone() }.passes()
        };
        assert!(passes(1000, 100, 0, 4) && passes(1050, 105, 0, 4));
        assert!(!passes(2000, 100, 0, 4) && !passes(999, 100, 0, 4));
        assert!(!passes(1000, 106, 0, 4) && !passes(1000, 100, 1, 4));
        assert!(!passes(1000, 100, 0, 3));
        let told = Price { cost: Cost::default(), due: due.clone() }.to_string();
        assert!(told.contains("least 900 + 100 for a reason"), "{told}");
    }
}
