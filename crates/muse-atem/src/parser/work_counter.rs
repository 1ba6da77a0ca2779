//! Counts the bytes that the parser scans, each time it scans them, so that tests can check that
//! the work is linear. Compiled to nothing outside of tests.

#[cfg(test)]
thread_local! {
    static BYTES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Adds `bytes` to the count.
#[inline]
pub(super) fn add(bytes: usize) {
    #[cfg(test)]
    BYTES.with(|count| count.set(count.get() + bytes as u64));
    #[cfg(not(test))]
    let _ = bytes;
}

/// The count since the last call.
#[cfg(test)]
pub(super) fn take() -> u64 {
    BYTES.with(|count| count.replace(0))
}
