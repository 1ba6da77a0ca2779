//! Generated messages and stubs of muse.v1.
