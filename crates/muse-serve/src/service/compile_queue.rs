//! The bounded queue of requests that may compile a grammar.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use muse_core::Error;
use tokio::sync::Semaphore;

use super::{ServiceError, run_blocking};

/// Requests that may compile a grammar and are started but not done. Each occupies a blocking
/// thread; how many of them compile at a time is up to `muse_atem::Grammars`.
const MAX_PENDING: usize = 64;

/// Bounds the requests that wait for a grammar, and cancels the work of clients that left.
#[derive(Clone)]
pub(super) struct CompileQueue {
    slots: Arc<Semaphore>,
}

impl Default for CompileQueue {
    fn default() -> Self {
        Self { slots: Arc::new(Semaphore::new(MAX_PENDING)) }
    }
}

impl CompileQueue {
    /// Runs `work` on a blocking thread. When this future is dropped, `work` goes on until it asks
    /// its [`CancelToken`].
    ///
    /// # Errors
    /// [`Error::Exhausted`] when the queue is full, or those of `work`.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&CancelToken) -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            let message = format!(
                "{MAX_PENDING} requests with tools or schemas are being prepared; try again later"
            );
            return Err(Error::Exhausted(message).into());
        };
        let token = CancelToken::default();
        let _guard = CancelOnDrop(token.clone());
        run_blocking(move || {
            let _slot = slot;
            work(&token)
        })
        .await
    }
}

/// Whether the client that wanted a result has left. Clones share one flag.
#[derive(Clone, Default)]
pub(super) struct CancelToken {
    cancelled: Arc<AtomicBool>,
}

impl CancelToken {
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

/// Cancels its token when it is dropped.
struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;

    #[tokio::test]
    async fn the_queue_is_bounded_and_work_is_cancelled_with_its_client() {
        let queue = CompileQueue::default();
        let (release, blocked) = mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
        let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
        let mut clients = Vec::new();
        for _ in 0..MAX_PENDING {
            let (queue, blocked) = (queue.clone(), Arc::clone(&blocked));
            let (started, ended) = (started.clone(), ended.clone());
            clients.push(tokio::spawn(async move {
                let work = move |token: &CancelToken| {
                    started.send(()).expect("the test receives");
                    blocked.lock().expect("no panic").recv().expect("the test releases");
                    ended.send(token.is_cancelled()).expect("the test receives");
                    Ok(())
                };
                queue.run(work).await
            }));
        }
        for _ in 0..MAX_PENDING {
            starts.recv().await;
        }
        let full = queue.run(|_| Ok(())).await;
        assert!(matches!(full, Err(ServiceError::Core(Error::Exhausted(_)))), "{full:?}");
        clients.iter().for_each(tokio::task::JoinHandle::abort);
        for client in clients {
            assert!(client.await.expect_err("aborted").is_cancelled());
        }
        assert_eq!(queue.slots.available_permits(), 0, "their work still runs");
        (0..MAX_PENDING).for_each(|_| release.send(()).expect("they wait"));
        for _ in 0..MAX_PENDING {
            assert_eq!(ends.recv().await, Some(true), "the client has left");
        }
        let all = queue.slots.acquire_many(MAX_PENDING as u32).await;
        drop(all.expect("never closed"));
        let next = queue.run(|token| Ok(token.is_cancelled())).await;
        assert!(!next.expect("a free slot"), "this client waits");
    }
}
