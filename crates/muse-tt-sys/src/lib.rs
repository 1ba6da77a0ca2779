//! Raw C ABI of Tenstorrent's Metal host API: the place of the header, the C++ shim behind it and
//! the bindings. `extern "C"` declarations and `repr(C)` types only; no logic.
//!
//! The shim will be a shared library of its own, opened at run time, so that everything else
//! builds and tests without Tenstorrent's parts.
