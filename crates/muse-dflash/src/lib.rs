//! The DFlash block drafter for speculative decoding.
