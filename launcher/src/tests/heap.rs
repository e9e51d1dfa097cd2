// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heap accounting: the allocator of this test program counts allocated bytes per thread.
//!
//! A block is counted with the overhead of glibc: its size plus 8 bytes, rounded up to a multiple of 16, at least 32.
#![allow(unsafe_code, reason = "nothing but an allocator is told of each block")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Bytes that this thread has allocated, minus bytes that it has freed. Negative if it has freed more, in blocks
    /// that other threads allocated.
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// Maximum of `HELD` since the maximum was last reset.
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn block(bytes: usize) -> isize {
    (bytes + 8).next_multiple_of(16).max(32).cast_signed()
}

fn grow(bytes: usize) {
    HELD.set(HELD.get() + block(bytes));
    MOST.set(MOST.get().max(HELD.get()));
}

fn shrink(bytes: usize) {
    HELD.set(HELD.get() - block(bytes));
}

// SAFETY: each method forwards to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // While the contents are copied, both blocks exist, so the new block is added before the old block is
        // subtracted.
        grow(bytes);
        shrink(layout.size());
        // SAFETY: the caller's contract is passed on.
        unsafe { System.realloc(place, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Heap bytes held by a component. The component runs on this thread and frees its own blocks.
#[derive(Debug, Default)]
pub(super) struct Holding {
    now: isize,
    pub(super) most: isize,
}

impl Holding {
    /// Counts the allocations of `act` for this component. Calls must not be nested.
    pub(super) fn during<T>(&mut self, act: impl FnOnce() -> T) -> T {
        let before = HELD.get();
        MOST.set(before);
        let done = act();
        self.most = self.most.max(self.now + MOST.get() - before);
        self.now += HELD.get() - before;
        done
    }
}

#[test]
fn current_and_peak_heap_use_are_counted() {
    let (mut one, mut other) = (Holding::default(), Holding::default());
    let kept = one.during(|| {
        drop(vec![0_u8; 1000]);
        vec![0_u8; 100]
    });
    other.during(|| drop(vec![0_u8; 10]));
    assert_eq!((one.now, one.most), (112, 1008));
    assert_eq!((other.now, other.most), (0, 32));
    one.during(|| drop(kept));
    assert_eq!(one.now, 0);
}
