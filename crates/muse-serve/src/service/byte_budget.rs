//! A bound on the bytes that all requests hold together: bodies as they arrive, what they are
//! decoded to, and replies that wait for their clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use muse_core::Error;

/// Bytes shared by all requests. Clones share one account.
#[derive(Clone, Debug)]
pub struct ByteBudget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: usize,
    used: AtomicUsize,
}

impl ByteBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { shared: Arc::new(Shared { limit, used: AtomicUsize::new(0) }) }
    }

    /// Bytes that are reserved now.
    pub fn used(&self) -> usize {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// An empty reservation, to be grown.
    pub fn reservation(&self) -> Reservation {
        Reservation { budget: self.clone(), bytes: AtomicUsize::new(0) }
    }
}

/// Bytes reserved by one owner, returned when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: ByteBudget,
    bytes: AtomicUsize,
}

impl Reservation {
    /// Reserves `more` bytes.
    ///
    /// # Errors
    /// [`Error::Exhausted`] when they are not free, with nothing changed; [`Error::Invalid`] when
    /// this reservation would exceed the whole budget, so that no retry can succeed.
    pub fn grow(&self, more: usize) -> Result<(), Error> {
        let Shared { limit, used } = &*self.budget.shared;
        let own = self.bytes.load(Ordering::Relaxed).saturating_add(more);
        if own > *limit {
            return Err(Error::Invalid(format!(
                "the request needs {own} bytes of memory and all requests together have {limit}; \
                 send less at once"
            )));
        }
        let grown = |used: usize| used.checked_add(more).filter(|sum| sum <= limit);
        if used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_err() {
            return Err(Error::Exhausted(format!(
                "the request needs {more} more bytes of memory and other requests hold what the \
                 limit of {limit} allows; try again later"
            )));
        }
        self.bytes.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }

    /// An empty reservation of the same budget.
    pub(super) fn sibling(&self) -> Self {
        self.budget.reservation()
    }

    /// Returns `bytes`, of which at least as many are held.
    pub(super) fn shrink_by(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.shared.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns all bytes beyond `bytes`.
    pub fn shrink_to(&self, bytes: usize) {
        let held = self.bytes.fetch_min(bytes, Ordering::Relaxed);
        self.budget.shared.used.fetch_sub(held.saturating_sub(bytes), Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_share_the_limit_and_return_it() {
        let budget = ByteBudget::new(100);
        let (a, b) = (budget.reservation(), budget.reservation());
        a.grow(60).expect("free bytes");
        assert!(matches!(b.grow(41), Err(Error::Exhausted(_))));
        assert_eq!(budget.used(), 60, "a refused reservation takes nothing");
        b.grow(40).expect("free bytes");
        a.shrink_to(10);
        assert_eq!(budget.used(), 50);
        b.grow(60).expect_err("a holds 10 bytes");
        b.grow(50).expect("free bytes");
        assert!(matches!(b.grow(11), Err(Error::Invalid(_))), "no retry can succeed");
        drop(b);
        assert_eq!(budget.used(), 10);
        a.shrink_to(20);
        assert_eq!(budget.used(), 10, "shrinking does not grow");
        let c = a.sibling();
        c.grow(70).expect("free bytes");
        c.shrink_by(30);
        assert_eq!(budget.used(), 50);
        drop((a, c));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn threads_never_exceed_the_limit() {
        let budget = ByteBudget::new(1000);
        std::thread::scope(|scope| {
            for i in 1..8 {
                let budget = &budget;
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        let reservation = budget.reservation();
                        if reservation.grow(100 * i).is_ok() {
                            assert!(budget.used() <= 1000);
                        }
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }
}
