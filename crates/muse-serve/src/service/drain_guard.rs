//! Counts the requests that are being served, so that the server can refuse new ones and wait for
//! the rest when it drains.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muse_core::contract::{Engine, SeqId};
use tokio::sync::Notify;

use super::ServiceError;

/// Admits requests until the server drains. Clones share one state.
#[derive(Clone, Default)]
pub struct DrainGuard {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    released: Notify,
}

#[derive(Default)]
struct State {
    draining: bool,
    stopped: bool,
    active: usize,
    running: HashSet<SeqId>,
}

impl DrainGuard {
    /// Admits a request, which counts as active until the permit is dropped.
    ///
    /// # Errors
    /// [`ServiceError::Draining`] once draining has begun.
    pub fn acquire(&self) -> Result<Permit, ServiceError> {
        let mut state = self.state();
        if state.draining {
            return Err(ServiceError::Draining);
        }
        state.active += 1;
        Ok(Permit { guard: self.clone() })
    }

    /// Begins to drain: no further request is admitted.
    pub fn drain(&self) {
        self.state().draining = true;
    }

    /// Whether draining has begun.
    pub fn is_draining(&self) -> bool {
        self.state().draining
    }

    /// How many requests are active.
    pub fn active(&self) -> usize {
        self.state().active
    }

    /// Waits until no request is active.
    pub async fn idle(&self) {
        loop {
            let released = self.shared.released.notified();
            if self.active() == 0 {
                return;
            }
            released.await;
        }
    }

    /// Drains and cancels every running sequence; their streams end with
    /// [`ServiceError::Stopped`].
    pub fn stop(&self, engine: &dyn Engine) {
        let mut state = self.state();
        (state.draining, state.stopped) = (true, true);
        state.running.iter().for_each(|&seq| engine.cancel(seq));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Counters and a set: consistent after every statement, so a panic elsewhere is harmless.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An active request.
pub struct Permit {
    guard: DrainGuard,
}

impl Permit {
    /// Records a sequence of the request for [`DrainGuard::stop`]; cancels it when stopped already.
    pub(super) fn register(&self, seq: SeqId, engine: &dyn Engine) {
        let mut state = self.guard.state();
        state.running.insert(seq);
        if state.stopped {
            engine.cancel(seq);
        }
    }

    /// Forgets a sequence that ended.
    pub(super) fn unregister(&self, seq: SeqId) {
        self.guard.state().running.remove(&seq);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.guard.state().active -= 1;
        self.guard.shared.released.notify_waiters();
    }
}
