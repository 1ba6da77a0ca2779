//! Buffers in the memory of a device.

use std::ptr;

use muse_core::Result;
use muse_tt_sys::ffi::{MTT_DRAM, MTT_L1, mtt_buffer, mtt_memory};

use crate::device::Device;
use crate::error::check;

/// A buffer in the memory of a device. Its pages are distributed over the banks in turn.
pub struct Buffer {
    device: Device,
    raw: *mut mtt_buffer,
    bytes: u64,
    page_bytes: u32,
}

// SAFETY: as for the device; a buffer is used only under the lock of its device.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `bytes` of DRAM, a whole number of pages.
    ///
    /// # Errors
    /// [`muse_core::Error::Exhausted`] when the device has not enough memory.
    pub fn new(device: &Device, bytes: u64, page_bytes: u32) -> Result<Self> {
        Self::allocate(device, MTT_DRAM, bytes, page_bytes)
    }

    /// Allocates one page in the L1 memory of every core, at the same address.
    pub(crate) fn in_cores(device: &Device, bytes: u64, page_bytes: u32) -> Result<Self> {
        Self::allocate(device, MTT_L1, bytes, page_bytes)
    }

    fn allocate(device: &Device, memory: mtt_memory, bytes: u64, page_bytes: u32) -> Result<Self> {
        assert!(bytes > 0 && bytes.is_multiple_of(u64::from(page_bytes)), "whole pages");
        let new = device.api().buffer_new.expect("a vtable has all functions");
        let mut raw = ptr::null_mut();
        let lock = device.lock();
        // SAFETY: the device is open; `raw` has space for one handle.
        let status = unsafe { new(lock.raw(), memory, bytes, page_bytes, &mut raw) };
        check(device.api(), status, &format!("allocating {bytes} bytes"))?;
        drop(lock);
        Ok(Self { device: device.clone(), raw, bytes, page_bytes })
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Size of a page in bytes.
    pub fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// The device that it is on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The address that kernels use: the same offset in every bank.
    pub fn address(&self) -> u64 {
        let address = self.device.api().buffer_address.expect("a vtable has all functions");
        // SAFETY: the buffer is allocated.
        unsafe { address(self.raw) }
    }

    /// Replaces the whole content.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn write(&self, from: &[u8]) -> Result<()> {
        assert_eq!(from.len() as u64, self.bytes, "all bytes of the buffer");
        self.write_at(0, from)
    }

    /// Replaces whole pages from byte `at` on.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn write_at(&self, at: u64, from: &[u8]) -> Result<()> {
        self.assert_pages(at, from.len());
        let write = self.device.api().buffer_write.expect("a vtable has all functions");
        let _lock = self.device.lock();
        let (from, bytes) = (from.as_ptr().cast(), from.len() as u64);
        // SAFETY: the buffer is allocated and has these pages, and `from` has `bytes` bytes.
        let status = unsafe { write(self.raw, at, from, bytes) };
        check(self.device.api(), status, "writing to the device")
    }

    /// Reads the whole content.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn read(&self, to: &mut [u8]) -> Result<()> {
        assert_eq!(to.len() as u64, self.bytes, "all bytes of the buffer");
        self.read_at(0, to)
    }

    /// Reads whole pages from byte `at` on.
    ///
    /// # Errors
    /// [`muse_core::Error::Device`] when the device fails.
    pub fn read_at(&self, at: u64, to: &mut [u8]) -> Result<()> {
        self.assert_pages(at, to.len());
        let read = self.device.api().buffer_read.expect("a vtable has all functions");
        let _lock = self.device.lock();
        let (to, bytes) = (to.as_mut_ptr().cast(), to.len() as u64);
        // SAFETY: the buffer is allocated and has these pages, and `to` has space for `bytes`.
        let status = unsafe { read(self.raw, at, to, bytes) };
        check(self.device.api(), status, "reading from the device")
    }

    fn assert_pages(&self, at: u64, bytes: usize) {
        let (page, end) = (u64::from(self.page_bytes), at + bytes as u64);
        let whole = at.is_multiple_of(page) && end.is_multiple_of(page);
        assert!(whole && at < end, "bytes {at} to {end} in pages of {page}");
        assert!(end <= self.bytes, "bytes to {end} of a buffer of {}", self.bytes);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let free = self.device.api().buffer_free.expect("a vtable has all functions");
        let _lock = self.device.lock();
        // SAFETY: this is the only handle of the buffer, and the device is still open.
        unsafe { free(self.raw) };
    }
}
