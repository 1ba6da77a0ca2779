//! After a first pass no operation allocates, on any thread.

mod layer;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use layer::{Layer, ROWS, tokens};
use muse_core::quant::Format;
use muse_cpu::{Cpu, CpuOptions};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: it forwards every call to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of the allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of the allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// The only test of this binary, since allocations of others would be counted too.
#[test]
fn operations_do_not_allocate_after_warm_up() {
    for threads in [1, 2] {
        let cpu = Cpu::new(CpuOptions { threads: Some(threads) }).unwrap();
        let mut layer = Layer::new(cpu, Format::Bf16).unwrap();
        let (chunk, one) = (tokens(ROWS), tokens(1));
        layer.run(&chunk, 0).unwrap();
        layer.run(&one, ROWS as u32).unwrap();
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for step in 1..20 {
            layer.run(&one, ROWS as u32 + step).unwrap();
        }
        layer.run(&chunk, 0).unwrap();
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "{threads} threads");
        assert!(
            layer.results(ROWS).0.iter().all(|x| x.is_finite()),
            "the passes computed something"
        );
    }
}
