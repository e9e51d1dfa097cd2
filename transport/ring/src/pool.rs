// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of a sender's bounce buffers are in use. The sender takes one, fills it and names it in a frame; the receiver
//! copies it out and releases it. The bytes themselves are moved by [`PoolBuffer`](crate::PoolBuffer).

use crate::layout::POOL_BUFFERS;
use crate::sync::{AtomicU32, Ordering};

/// The shared half: one word per buffer, each on its own line, zero when free.
#[derive(Debug)]
#[repr(C)]
pub struct PoolSide {
    states: [State; POOL_BUFFERS as usize],
}

#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
struct State(AtomicU32);

impl PoolSide {
    /// Receiver: gives buffer `index` back to its sender. An index that no pool has does nothing.
    #[inline]
    pub fn release(&self, index: u32) {
        if let Some(state) = self.states.get(index as usize) {
            // PAIR(pool-free): Pool::acquire loads the word with Acquire before the sender writes again.
            state.0.store(FREE, Ordering::Release);
        }
    }

    /// A new side in private memory, for tests and models.
    #[must_use]
    pub fn new() -> Self {
        Self {
            states: core::array::from_fn(|_| State(AtomicU32::new(FREE))),
        }
    }
}

impl Default for PoolSide {
    fn default() -> Self {
        Self::new()
    }
}

/// The sender's half: which buffers it believes to be in use.
#[derive(Debug)]
pub struct Pool<'a> {
    side: &'a PoolSide,
    busy: u64,
    last: u32,
}

impl<'a> Pool<'a> {
    /// The pool of a new (zero) side. There must be only one per side.
    #[must_use]
    pub fn new(side: &'a PoolSide) -> Self {
        Self {
            side,
            busy: 0,
            last: 0,
        }
    }

    /// Takes a buffer: the one used last if it is free again (its bytes are still in the cache), else the lowest
    /// free one. `None` when all are in use.
    pub fn acquire(&mut self) -> Option<u32> {
        if self.busy & 1 << self.last != 0 && self.is_free(self.last) {
            self.mark_busy(self.last);
            return Some(self.last);
        }
        if self.busy == u64::MAX {
            self.reclaim();
        }
        let index = self.busy.trailing_ones();
        if index >= POOL_BUFFERS {
            return None;
        }
        self.mark_busy(index);
        self.last = index;
        Some(index)
    }

    /// Puts back a buffer that was taken and never named to anybody.
    pub fn put_back(&mut self, index: u32) {
        self.side.release(index);
        self.busy &= !(1 << (index % POOL_BUFFERS));
    }

    /// Buffers that are in use, after a look at those that came back.
    pub fn in_use(&mut self) -> u32 {
        self.reclaim();
        self.busy.count_ones()
    }

    fn reclaim(&mut self) {
        for index in 0..POOL_BUFFERS {
            if self.busy & 1 << index != 0 && self.is_free(index) {
                self.busy &= !(1 << index);
            }
        }
    }

    fn is_free(&self, index: u32) -> bool {
        // PAIR(pool-free): PoolSide::release stores the word with Release after the receiver's copy.
        self.side.states[index as usize].0.load(Ordering::Acquire) == FREE
    }

    fn mark_busy(&mut self, index: u32) {
        self.busy |= 1 << index;
        // Published by the head of the frame that names the buffer: PAIR(slot-full).
        self.side.states[index as usize]
            .0
            .store(BUSY, Ordering::Relaxed);
    }
}

const FREE: u32 = 0;
const BUSY: u32 = 1;

const _: () = assert!(POOL_BUFFERS == 64, "the bitmap has one bit per buffer");

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_released_buffer_is_used_again_first() {
        let side = PoolSide::new();
        let mut pool = Pool::new(&side);
        let first = pool.acquire().unwrap();
        let second = pool.acquire().unwrap();
        assert_ne!(first, second);
        side.release(second);
        assert_eq!(pool.acquire(), Some(second));
        assert_eq!(pool.in_use(), 2);
    }

    #[test]
    fn all_in_use_is_none_until_one_returns() {
        let side = PoolSide::new();
        let mut pool = Pool::new(&side);
        for _ in 0..POOL_BUFFERS {
            assert!(pool.acquire().is_some());
        }
        assert_eq!(pool.acquire(), None);
        side.release(17);
        side.release(9999);
        assert_eq!(pool.acquire(), Some(17));
        assert_eq!(pool.acquire(), None);
        pool.put_back(17);
        assert_eq!(pool.in_use(), 63);
    }
}
