//! Counts the bytes that are looked at, each as often as it is: tests hold the listeners to linear
//! work. Costs nothing outside of tests.

#[cfg(test)]
thread_local! {
    static BYTES: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// So many bytes were looked at.
#[inline]
pub(super) fn looked_at(bytes: usize) {
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
