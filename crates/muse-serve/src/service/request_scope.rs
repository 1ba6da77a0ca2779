//! What the server tracks of one request, from its headers to the end of its reply: its id, the
//! memory it holds, and the facts of its log line.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::byte_budget::{ByteBudget, Reservation};
use super::settings::random_u64;
use super::usage::{ChatUsage, RequestUsage};

/// Letters of an id that a client chose.
const MAX_ID_BYTES: usize = 128;

/// One request. Dropping it returns its memory and writes its log line.
#[derive(Debug)]
pub struct RequestScope {
    id: String,
    /// The call, such as `POST /v1/chat/completions`.
    method: String,
    start: Instant,
    /// The memory of the request and of its reply.
    pub(crate) memory: Reservation,
    facts: Mutex<Facts>,
}

#[derive(Debug, Default)]
struct Facts {
    status: Option<String>,
    /// The reason of the error that ended it.
    error: Option<&'static str>,
    /// Whether the reply was sent as a whole.
    complete: bool,
    first_token: Option<Duration>,
    /// Of each choice that ended.
    usage: Vec<ChatUsage>,
}

impl RequestScope {
    /// A request with the id that its client chose, or a new one when that is absent or not 1 to
    /// 128 visible ASCII characters.
    pub(crate) fn new(method: String, id: Option<&str>, budget: &ByteBudget) -> Self {
        let valid = |id: &&str| {
            (1..=MAX_ID_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
        };
        Self {
            id: id.filter(valid).map_or_else(new_id, str::to_owned),
            method,
            start: Instant::now(),
            memory: budget.reservation(),
            facts: Mutex::default(),
        }
    }

    /// The id of the request.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Sets the status that was sent; a later one replaces it.
    pub(crate) fn set_status(&self, status: impl ToString) {
        self.facts().status = Some(status.to_string());
    }

    /// Sets the reason of the error that ended the request.
    pub(crate) fn set_error(&self, reason: &'static str) {
        self.facts().error = Some(reason);
    }

    /// Records that the reply was sent as a whole.
    pub(crate) fn set_complete(&self) {
        self.facts().complete = true;
    }

    /// Records that a token arrived; the first one counts.
    pub(super) fn record_token(&self) {
        let elapsed = self.start.elapsed();
        self.facts().first_token.get_or_insert(elapsed);
    }

    /// Records what a choice took.
    pub(super) fn record_usage(&self, usage: &ChatUsage) {
        self.facts().usage.push(usage.clone());
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        // Every field is set at once, so a panic elsewhere is harmless.
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of a request that brought none.
fn new_id() -> String {
    format!("req-{:016x}", random_u64())
}

impl Drop for RequestScope {
    fn drop(&mut self) {
        let facts = std::mem::take(&mut *self.facts());
        let milliseconds = |time: Duration| time.as_millis() as u64;
        let total = (!facts.usage.is_empty()).then(|| RequestUsage::new(&facts.usage));
        let total = total.as_ref();
        tracing::info!(
            target: "muse_serve::requests",
            id = self.id,
            status = facts.status.as_deref().unwrap_or("none"),
            error = facts.error,
            disconnected = (!facts.complete).then_some(true),
            prompt_tokens = total.map(|total| total.prompt),
            cached_tokens = total.map(|total| total.cached),
            completion_tokens = total.map(|total| total.completion),
            first_token_ms = facts.first_token.map(milliseconds),
            tokens_per_second = total.map(|total| total.rates.tokens_per_second),
            duration_ms = milliseconds(self.start.elapsed()),
            "{}",
            self.method,
        );
    }
}
