//! Who is inside: requests enter until the server drains, and the server waits until all left.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muse_core::contract::{Engine, SeqId};
use tokio::sync::Notify;

use super::Refusal;

/// The way into the services. Clones are the same gate.
#[derive(Clone, Default)]
pub struct Gate {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    left: Notify,
}

#[derive(Default)]
struct State {
    draining: bool,
    stopped: bool,
    inside: usize,
    running: HashSet<SeqId>,
}

impl Gate {
    /// Lets a request in, until the pass is dropped.
    ///
    /// # Errors
    /// [`Refusal::Draining`] once the gate is closed.
    pub fn enter(&self) -> Result<Pass, Refusal> {
        let mut state = self.state();
        if state.draining {
            return Err(Refusal::Draining);
        }
        state.inside += 1;
        Ok(Pass { gate: self.clone() })
    }

    /// Lets nobody in any more.
    pub fn close(&self) {
        self.state().draining = true;
    }

    /// Whether the gate is closed.
    pub fn is_closed(&self) -> bool {
        self.state().draining
    }

    /// How many requests are inside.
    pub fn inside(&self) -> usize {
        self.state().inside
    }

    /// Waits until nobody is inside.
    pub async fn empty(&self) {
        loop {
            let left = self.shared.left.notified();
            if self.inside() == 0 {
                return;
            }
            left.await;
        }
    }

    /// Ends everything that still runs; streams tell their clients so.
    pub fn stop(&self, engine: &dyn Engine) {
        let mut state = self.state();
        (state.draining, state.stopped) = (true, true);
        state.running.iter().for_each(|&seq| engine.cancel(seq));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is inside.
pub struct Pass {
    gate: Gate,
}

impl Pass {
    /// Notes a sequence of the request, so that stopping can reach it.
    pub(super) fn runs(&self, seq: SeqId, engine: &dyn Engine) {
        let mut state = self.gate.state();
        state.running.insert(seq);
        if state.stopped {
            engine.cancel(seq);
        }
    }

    /// Notes that a sequence ended.
    pub(super) fn ended(&self, seq: SeqId) {
        self.gate.state().running.remove(&seq);
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.gate.state().inside -= 1;
        self.gate.shared.left.notify_waiters();
    }
}
