//! Work that is too long for the threads that serve others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use muse_core::Error;
use tokio::sync::Semaphore;

use super::Refusal;

/// Grammars compiled at a time, and requests that may wait for their turn.
const AT_ONCE: usize = 4;
const WAITING: usize = 64;

/// Runs what reads long texts: it takes milliseconds and more.
pub(crate) async fn aside<T: Send + 'static>(read: impl FnOnce() -> T + Send + 'static) -> T {
    let read = tokio::task::spawn_blocking(read).await;
    read.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Runs what takes seconds at worst: a few at a time, so that threads are left for everyone else,
/// and not for clients who left.
#[derive(Clone)]
pub(super) struct Workshop {
    turns: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Default for Workshop {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            places: Arc::new(Semaphore::new(AT_ONCE + WAITING)),
        }
    }
}

impl Workshop {
    /// Runs `work` in its turn; it is told whether anybody still waits for it.
    ///
    /// # Errors
    /// [`Error::Exhausted`] when too many wait already, or those of `work`.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Wanted) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let Ok(_place) = self.places.try_acquire() else {
            let message = format!("{WAITING} requests with tools or schemas wait; try again later");
            return Err(Error::Exhausted(message).into());
        };
        let turn = Arc::clone(&self.turns).acquire_owned().await.expect("it is never closed");
        let wanted = Wanted::default();
        let _leaves = Leaves(wanted.clone());
        aside(move || {
            let _turn = turn;
            work(&wanted)
        })
        .await
    }
}

/// Whether anybody waits for the result of some work.
#[derive(Clone, Default)]
pub(super) struct Wanted {
    left: Arc<AtomicBool>,
}

impl Wanted {
    /// Whether it is worth going on.
    pub(super) fn still(&self) -> bool {
        !self.left.load(Ordering::Relaxed)
    }
}

/// Tells when it is dropped.
struct Leaves(Wanted);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.left.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn work_is_bounded_and_given_up_with_its_client() {
        let shop = Workshop::default();
        let (block, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(std::sync::Mutex::new(blocked));
        let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
        let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
        let mut running = Vec::new();
        for _ in 0..AT_ONCE + WAITING {
            let (shop, blocked) = (shop.clone(), Arc::clone(&blocked));
            let (started, ended) = (started.clone(), ended.clone());
            running.push(tokio::spawn(async move {
                let work = move |wanted: &Wanted| {
                    started.send(()).expect("the test listens");
                    blocked.lock().expect("no panic").recv().expect("a word");
                    ended.send(wanted.still()).expect("the test listens");
                    Ok(())
                };
                shop.run(work).await
            }));
        }
        for _ in 0..AT_ONCE {
            starts.recv().await;
        }
        while shop.places.available_permits() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let full = shop.run(|_| Ok(())).await;
        assert!(matches!(full, Err(Refusal::Core(Error::Exhausted(_)))), "{full:?}");
        // Those who wait vanish at once, the others are told.
        running.iter().for_each(tokio::task::JoinHandle::abort);
        for task in running {
            assert!(task.await.expect_err("aborted").is_cancelled());
        }
        (0..AT_ONCE).for_each(|_| block.send(()).expect("they wait"));
        for _ in 0..AT_ONCE {
            assert_eq!(ends.recv().await, Some(false), "nobody waits any more");
        }
        let again = shop.run(|wanted| Ok(wanted.still())).await;
        assert!(again.expect("there is room again"), "somebody waits");
        assert!(starts.try_recv().is_err(), "those who left never began");
    }
}
