//! Sees to it that a lost device is noticed: the host library waits for one without end, and its
//! calls cannot be taken back, so the process ends and its supervisor starts it anew.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{process, thread};

/// Watches the calls of one device.
pub(crate) struct Watch {
    /// When the call under way began.
    began: Arc<Mutex<Option<Instant>>>,
}

/// A call under way.
pub(crate) struct Call<'a>(&'a Watch);

impl Watch {
    /// Ends the process when a call takes longer than `patience`; none waits without end.
    pub(crate) fn new(id: u32, patience: Option<Duration>) -> Self {
        let began: Arc<Mutex<Option<Instant>>> = Arc::default();
        let seen = Arc::downgrade(&began);
        if let Some(patience) = patience {
            // It ends with the device, a look later.
            thread::spawn(move || {
                while let Some(began) = seen.upgrade() {
                    if lock(&began).is_some_and(|began| began.elapsed() > patience) {
                        eprintln!(
                            "Tenstorrent device {id} has not answered for {} s: it is lost, or its \
                             simulator has ended; this process ends with it, see that the device \
                             is there and start again",
                            patience.as_secs()
                        );
                        // The host library would wait at an orderly end too.
                        process::abort();
                    }
                    drop(began);
                    thread::sleep(patience / 20);
                }
            });
        }
        Self { began }
    }

    /// A call begins; it ends with what is returned.
    pub(crate) fn call(&self) -> Call<'_> {
        *lock(&self.began) = Some(Instant::now());
        Call(self)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        *lock(&self.0.began) = None;
    }
}

fn lock(began: &Mutex<Option<Instant>>) -> MutexGuard<'_, Option<Instant>> {
    // It holds one value, which is never half done.
    began.lock().unwrap_or_else(PoisonError::into_inner)
}
