//! Work that would hold up an async worker.

/// Runs `work` on a blocking thread and waits for its result. For anything that can take more than
/// a few hundred microseconds: on an async worker it would delay every connection of that worker.
///
/// # Panics
/// When `work` panics.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let result = tokio::task::spawn_blocking(work).await;
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
